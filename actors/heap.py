"""Memory goes back to the system as soon as it is freed, so that a thousand pages leave the process as small as ten.

glibc would otherwise learn from the first large bodies to keep ever larger ones (its dynamic mmap threshold),
and give each thread a heap of its own.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MAPPED_FROM_BYTES = 2**18 + 2**12
"""Just over what asyncio receives at once: mapped anew for every piece of a body, it would cost its pages each time."""
_KEPT_BYTES = 2**22


def give_back_freed() -> bool:
    """Map every larger allocation on its own, and keep little of what smaller ones leave free; false where the C library
    is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    told = ((_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_ARENA_MAX, 2))
    return all([mallopt(name, value) for name, value in told])
