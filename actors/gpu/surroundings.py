"""The gpu process's surroundings: environment variables before anything heavy is imported, loggers after."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import os
import threading
import warnings
from pathlib import Path

_ALWAYS = {
    # Asks NVML whether there is a GPU: an import must not open a CUDA context, since the device is chosen
    # later.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # No progress bars, telemetry, updates or installations.
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "YOLO_OFFLINE": "true",
    "YOLO_AUTOINSTALL": "false",
    "TOKENIZERS_PARALLELISM": "false",
}
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_CHATTY = ("ultralytics", "htrflow", "transformers", "PIL", "matplotlib", "urllib3", "filelock", "httpx")


def prepare(*, online: bool, processes: int = 1) -> None:
    """Set what torch, ultralytics, transformers and huggingface_hub read while they are imported.

    What the environment already says stays, but for `HF_HUB_OFFLINE`, which follows `online`. `processes` such as
    this one share the CPUs.
    """
    for name, value in _ALWAYS.items():
        os.environ.setdefault(name, value)
    if not online:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"
    threads = str(cpu_threads(processes))
    for name in _THREAD_VARIABLES:
        os.environ[name] = os.environ.get(name) or threads
    _keep_progress_bars_local()
    # It reports each optional model family that is not installed as an error, with a traceback.
    logging.getLogger("htrflow.models.importer").setLevel(logging.CRITICAL)


def _keep_progress_bars_local() -> None:
    """A bar's lock between processes is a named semaphore, which a process that is killed leaves behind."""
    if importlib.util.find_spec("tqdm") is not None:
        importlib.import_module("tqdm").tqdm.set_lock(threading.RLock())


def quiet() -> None:
    """Let the libraries' loggers speak from WARNING up; their tracebacks are ours to write."""
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("htrflow.pipeline.pipeline").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)


def see_only(device: str | None) -> None:
    """Choose the device: a value for CUDA_VISIBLE_DEVICES, effective until the first CUDA context is
    opened."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device


def cpu_threads(processes: int, cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Threads for one of `processes`: the CPUs that there are less one for fetching and storing, shared out.

    torch counts the machine's CPUs. With more threads than the cgroup's quota each turn of work is throttled, and with
    one for every CPU they all wait, each turn, for the one whose CPU is decoding the next page.
    """
    cpus = len(os.sched_getaffinity(0))
    quota = _quota_cpus(cpu_max)
    return max(1, (min(cpus, quota or cpus) - 1) // processes)


def _quota_cpus(cpu_max: Path) -> int | None:
    """The cgroup's CPU quota, rounded up to whole CPUs; None where there is none."""
    try:
        quota, period = cpu_max.read_text().split()[:2]
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        return None
