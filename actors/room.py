"""Whether it is the disk (or the memory that a directory lies in) that has no room."""

from __future__ import annotations

import errno


def no_room(error: BaseException | None) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
