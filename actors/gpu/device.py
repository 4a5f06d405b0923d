"""What an exception says about the device, and giving the device's memory back.

Imports no torch: only looks at what is loaded.
"""

from __future__ import annotations

import gc
import re
import sys
import traceback
from collections.abc import Iterator
from enum import StrEnum


class Fault(StrEnum):
    """Who is to blame for an exception. `DEVICE`: a CUDA error after which the process's context is
    unusable."""

    ORDINARY = "ordinary"
    OUT_OF_MEMORY = "out of memory"
    DEVICE = "device error"


_OUT_OF_MEMORY = re.compile(
    r"CUDA (?:error: )?out of memory|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
    r"|DefaultCPUAllocator: (?:can't|not enough)|Unable to allocate .*for an array",
    re.IGNORECASE,
)
_DEVICE = re.compile(
    r"CUDA error|CUDA driver|CUDA-capable device|CUDNN_STATUS|cuDNN error|CUBLAS_STATUS|CUFFT_STATUS"
    r"|CUSOLVER_STATUS|device-side assert|uncorrectable ECC|no kernel image|HIP error"
    r"|CUDA unknown error|CUDA initialization|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|Invalid CUDA 'device",
    re.IGNORECASE,
)


def fault_of(error: BaseException) -> Fault:
    """Judge an exception and what it was raised from, by class name and text."""
    for e in chain(error):
        names = {c.__name__ for c in type(e).__mro__}
        text = str(e)
        if "OutOfMemoryError" in names or isinstance(e, MemoryError) or _OUT_OF_MEMORY.search(text):
            return Fault.OUT_OF_MEMORY
        if "AcceleratorError" in names or (isinstance(e, RuntimeError | ValueError) and _DEVICE.search(text)):
            return Fault.DEVICE
    return Fault.ORDINARY


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what it was raised from, innermost last."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def in_words(error: BaseException) -> str:
    """`ValueError: text`, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def give_memory_back() -> None:
    """Free what dropped exceptions held, on the device too, so that a smaller batch has room."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
