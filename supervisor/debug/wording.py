"""Numbers as people read them: durations, sizes, times of day."""

from __future__ import annotations

import re
import time
from typing import Any

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clock(seconds: float | None) -> str:
    """`0:07`, `12:44`, `1:02:03`; empty for None."""
    if seconds is None:
        return ""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def long_clock(seconds: float) -> str:
    """`00:12:44`."""
    minutes, second = divmod(int(seconds), 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"


def lasted(seconds: float | None) -> str:
    """`0.3s`, `12s`, `600s`; empty for None."""
    if seconds is None:
        return ""
    return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"


def age(seconds: float) -> str:
    """`0.3 s old`, `1:02:03 old`."""
    return f"{clock(seconds)} old" if seconds >= 100 else f"{seconds:.1f} s old"


def size(size_bytes: float | None) -> str:
    """`121 MiB`, `6.1 GiB`; empty for None."""
    if size_bytes is None:
        return ""
    mib = size_bytes / (1 << 20)
    if mib >= 1000:
        return f"{mib / 1024:.1f} GiB"
    return f"{mib:.0f} MiB" if mib >= 10 else f"{mib:.1f} MiB"


def share(used_bytes: float, of_bytes: float) -> str:
    """`148/512 MiB`, `9.1/16 GiB`."""
    if of_bytes >= 1000 << 20:
        return f"{used_bytes / (1 << 30):.1f}/{of_bytes / (1 << 30):.4g} GiB"
    used = used_bytes / (1 << 20)
    return f"{used:.{1 if 0 < used < 10 else 0}f}/{of_bytes / (1 << 20):.0f} MiB"


def of_day(at: float) -> str:
    """`12:04:31`, in the time zone of whoever reads it."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def ago(at: float, now: float) -> str:
    """`7 s ago`, `12:44 ago`."""
    seconds = max(0.0, now - at)
    return f"{seconds:.0f} s ago" if seconds < 100 else f"{clock(seconds)} ago"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def printable(value: Any) -> Any:
    """`value` with nothing in its texts that would act on a terminal: colours go, other control characters are spelt."""
    if isinstance(value, str):
        return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", _SEQUENCE.sub("", value))
    if isinstance(value, dict):
        return {name: printable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [printable(part) for part in value]
    return value
