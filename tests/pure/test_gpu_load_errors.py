"""Which failed loads are permanent, by the exceptions that the libraries raise."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from actors.gpu import device
from actors.gpu.engine import NoApi
from actors.gpu.load_errors import is_permanent, no_room_in, sentence, versions
from actors.gpu.smoke import SmokeFailed


def named(name: str, *bases: type[BaseException], module: str = "some.library") -> type[BaseException]:
    return type(name, bases, {"__module__": module})


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


# As huggingface_hub derives them.
HubError = named("HfHubHTTPError", named("HTTPError", Exception, module="httpx"), OSError)
MissingRepo = named("RepositoryNotFoundError", HubError)
Gated = named("GatedRepoError", MissingRepo)
MissingRevision = named("RevisionNotFoundError", HubError)
NotCached = named("LocalEntryNotFoundError", FileNotFoundError, ValueError)
BadName = named("HFValidationError", ValueError)

PERMANENT = [
    KeyError("settings"),
    NotImplementedError("Model yolo99 is not supported."),
    NotImplementedError("Cannot copy out of meta tensor; no data!"),
    TypeError("YOLO.__init__() got an unexpected keyword argument 'colour'"),
    ValueError("Unknown file type"),
    BadName("Repo id must use alphanumeric chars"),
    pickle.UnpicklingError("invalid load key, '\\x00'."),
    ModuleNotFoundError("No module named 'models.yolo'"),
    EOFError("Ran out of input"),
    RuntimeError("PytorchStreamReader failed reading zip archive"),
    RuntimeError("Error(s) in loading state_dict for VisionEncoderDecoderModel"),
    named("SafetensorError", Exception)("Error while deserializing header"),
    OSError("It looks like the config file at 'config.json' is not a valid JSON file."),
    MissingRepo("404"),
    Gated("403"),
    raised_from(OSError("demo/none is not a local folder and is not a valid model identifier"), MissingRepo("404")),
    raised_from(OSError("no such revision"), MissingRevision("404")),
    NoApi("htrflow has neither"),
    SmokeFailed("does not run", device.Fault.ORDINARY),
]
TRANSIENT = [
    FileNotFoundError("Could not find any file that matches the pattern '*.pt'"),
    OSError(errno.EIO, "Input/output error"),
    NotCached("not in the cache, and offline"),
    raised_from(OSError("We couldn't connect to the Hub"), NotCached("offline")),
    HubError("503 Service Unavailable"),
    named("ConnectError", Exception, module="httpx")("no route to host"),
    ConnectionResetError("reset"),
    TimeoutError("timed out"),
    MemoryError(),
    RuntimeError("CUDA error: no kernel image is available for execution on the device"),
    RuntimeError("Found no NVIDIA driver on your system."),
    named("OutOfMemoryError", RuntimeError)("CUDA out of memory."),
    named("AcceleratorError", RuntimeError)("uncorrectable ECC error encountered"),
    RuntimeError("something nobody thought of"),
    SmokeFailed("does not run", device.Fault.DEVICE),
    SmokeFailed("does not run", device.Fault.OUT_OF_MEMORY),
]


@pytest.mark.parametrize("error", PERMANENT, ids=repr)
def test_what_no_attempt_can_help_is_permanent(error: BaseException) -> None:
    assert is_permanent(error)


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_what_may_go_better_elsewhere_or_later_is_not(error: BaseException) -> None:
    assert not is_permanent(error)


def test_a_model_of_another_line_of_transformers_is_said_with_versions() -> None:
    said = sentence(NotImplementedError("Cannot copy out of meta tensor; no data!"))
    assert said.startswith("the pipeline does not load: NotImplementedError: Cannot copy out of meta tensor")
    assert said.endswith(f"({versions()})")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("CUDA out of memory. Tried to allocate 20.00 MiB", device.Fault.OUT_OF_MEMORY),
        ("CUDA error: out of memory", device.Fault.OUT_OF_MEMORY),
        ("CUDA error: device-side assert triggered", device.Fault.DEVICE),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", device.Fault.DEVICE),
        ("Expected all tensors to be on the same device, but found cuda:0 and cpu", device.Fault.ORDINARY),
    ],
)
def test_what_an_error_says_about_the_device(text: str, fault: device.Fault) -> None:
    assert device.fault_of(RuntimeError(text)) is fault


@pytest.mark.parametrize(
    ("name", "second", "full"),
    [
        ("/scratch/gpu-0.1/lines.pt", None, True),
        ("/models/lines.pt", "/scratch/gpu-0.1/lines.pt", True),
        ("/data/hub/blobs/1", None, False),
        (None, None, False),
    ],
)
def test_only_a_file_in_the_workdir_makes_it_the_full_one(name: str | None, second: str | None, full: bool) -> None:
    cause = OSError(errno.ENOSPC, "No space left on device", name, None, second)
    assert no_room_in(Path("/scratch/gpu-0.1"), raised_from(RuntimeError("it does not load"), cause)) is full
