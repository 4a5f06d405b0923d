"""Memory goes back to the system as soon as it is freed, so that a thousand pages leave the process as small as ten.

glibc would otherwise learn from the first large bodies to keep ever larger ones (its dynamic mmap threshold),
and give each thread a heap of its own.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_MAPPED_FROM_BYTES = 2**18


def give_back_freed() -> bool:
    """Map every allocation of 256 KiB and more on its own; false where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)) and bool(mallopt(_M_ARENA_MAX, 2))
