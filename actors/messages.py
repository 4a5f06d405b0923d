"""What the supervising process and the actors say to each other.

A page travels as its number (from 1); its published name is `page_name(number)`. Pixels, page lists, listings and
documents never travel in a message: they lie in the arena or in a file of the workdir that the message names.
Durations are seconds, sizes bytes. Every free text is at most 1,000 characters (`supervisor.wire.bounded`) and holds
no credentials.
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.wire import Codec

FAILED, DEFERRED = "failed", "deferred"


def page_name(page: int) -> str:
    """`0001` for page 1: at least four digits, as in every key and document."""
    return f"{page:04d}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish within `within_s` and end with exit status 0."""

    within_s: float


@dataclass(frozen=True, slots=True)
class LogLevel:
    """Set the level of this project's loggers in that process (`DEBUG`, `INFO`, …)."""

    level: str


@dataclass(frozen=True, slots=True)
class ErrorLogged:
    """One record of level ERROR or above by the project's own loggers (counted in progress.json)."""

    count: int = 1


# ---------------------------------------------------------------------------------------------------- to the fetcher


@dataclass(frozen=True, slots=True)
class ReadSource:
    """Fetch the manifest (or build it from the image list) and write the page list to `spec.pages_path`.

    With `reuse` the list is read back from there instead: the fetcher was restarted.
    """

    reuse: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Download these pages, in this order, as far as the byte budget allows."""

    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode a fetched page into the arena block at `offset`, of `length` bytes (width x height x 3)."""

    page: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is held of these pages (bytes, downloads under way).

    No answer comes for them any more, but for a `Decode` that was ordered before: its block is in use until it is
    answered.
    """

    pages: tuple[int, ...]


# -------------------------------------------------------------------------------------------------- from the fetcher


@dataclass(frozen=True, slots=True)
class SourceRead:
    """The page list is written: `count` pages, first MAX_PAGES applied; `total` before that."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """The source gives no page list; `permanent` decides between exit 13 and 1. `workdir_full`: it is the disk, not the
    source."""

    permanent: bool
    error: str
    workdir_full: bool = False


@dataclass(frozen=True, slots=True)
class FetchStarted:
    page: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page's bytes are held and its header is good.

    `size_bytes` is what is held, `origin_bytes` what came from the origin (0 on a cache hit), `width` and `height` the
    upright pixel size, `seconds` from the first request to the last byte, `cache` one of `off`, `hit`, `miss`.
    """

    page: int
    size_bytes: int
    origin_bytes: int
    width: int
    height: int
    seconds: float
    cache: str


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """`outcome` is `failed` (for good) or `deferred` (not now). `origin_bytes` counts what was downloaded in vain."""

    page: int
    outcome: str
    reason: str
    origin_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CacheStored:
    """One image was stored in the image cache."""

    page: int


@dataclass(frozen=True, slots=True)
class DecodeStarted:
    page: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """The page's upright RGB pixels (height x width x 3, row by row) lie in its block; its bytes are dropped."""

    page: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DecodeFailed:
    """The image does not decode: the page is failed."""

    page: int
    reason: str


# ------------------------------------------------------------------------------------------------------- to the gpu


@dataclass(frozen=True, slots=True)
class Load:
    """Load the models on `device` (a value for CUDA_VISIBLE_DEVICES; None leaves the environment as it is).

    `directory` is this incarnation's own directory for exported files. With `smoke` each model is called once on a
    small bundled image before `Loaded` is sent.
    """

    device: str | None
    directory: str
    smoke: bool


@dataclass(frozen=True, slots=True)
class Transcribe:
    """Run the pipeline on the page whose pixels lie at `offset` of the arena (height x width x 3, RGB)."""

    page: int
    offset: int
    width: int
    height: int


# ----------------------------------------------------------------------------------------------------- from the gpu


@dataclass(frozen=True, slots=True)
class Imported:
    """torch and htrflow are imported. `api` is `document` or `collection`."""

    seconds: float
    api: str
    htrflow: str
    torch: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The models are loaded; the actor takes up to `capacity` pages at once. `models` names them, for the log."""

    seconds: float
    capacity: int
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The models cannot be loaded. `permanent`: exit 13. `smoke`: they load but cannot run (the smoke test).
    `workdir_full`: the workdir has no room."""

    permanent: bool
    error: str
    smoke: bool = False
    workdir_full: bool = False


@dataclass(frozen=True, slots=True)
class PageStarted:
    page: int


@dataclass(frozen=True, slots=True)
class Exported:
    """`<directory>/<name>.page.xml`, `.alto.xml` and `.tree.json` are written; the arena block is let go of."""

    page: int
    size_bytes: int
    lines: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PageFailed:
    """This page cannot be transcribed; the arena block is let go of and the actor goes on.

    `out_of_memory`: try it once more in a fresh process before it is failed. `workdir_full`: the workdir has no room;
    the page is deferred and the run ends.
    """

    page: int
    reason: str
    out_of_memory: bool = False
    workdir_full: bool = False


@dataclass(frozen=True, slots=True)
class Dying:
    """The process is about to end itself, and why (a poisoned CUDA context, a dead worker thread)."""

    reason: str
    device_error: bool


# --------------------------------------------------------------------------------------------------- to the uploader


@dataclass(frozen=True, slots=True)
class PutSource:
    """Store the built manifest of an IMAGES volume under `sources/`."""


@dataclass(frozen=True, slots=True)
class ListStored:
    """List what is stored and write the pages that are done to `spec.done_path` (see actors/uploader/resume.py)."""


@dataclass(frozen=True, slots=True)
class Clear:
    """Delete manifest.json, then iiif.json, then every stored file of every page that is not done."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Check, repair, stamp and store one exported page from `directory`; its files are unlinked afterwards."""

    page: int
    directory: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PutProgress:
    """Store progress.json; a newer one replaces one that still waits."""

    body: str


@dataclass(frozen=True, slots=True)
class ShipLog:
    """Ship the run log if it changed. The `final` one never overwrites another run's."""

    final: bool


@dataclass(frozen=True, slots=True)
class PublishInterim:
    """Republish iiif.json from the outcomes in `outcomes_path`."""

    outcomes_path: str


@dataclass(frozen=True, slots=True)
class VerifyStored:
    """List both prefixes again; the pages of `outcomes_path` that should be there and are not go to `missing_path`."""

    outcomes_path: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Store iiif.json, pipeline.yaml and, last, manifest.json, from the outcomes in `outcomes_path`."""

    outcomes_path: str


@dataclass(frozen=True, slots=True)
class PutDump:
    """Store the debug dump in the file at `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class Cease:
    """The run is stopping: from now on delete nothing and start no put of manifest.json or iiif.json; go on with
    uploads, progress, log and dump."""


# ------------------------------------------------------------------------------------------------- from the uploader


@dataclass(frozen=True, slots=True)
class SourcePut:
    pass


@dataclass(frozen=True, slots=True)
class StoredListed:
    """`done` pages need no work; `complete`: the stored manifest.json covers exactly these pages as they are."""

    done: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Cleared:
    deleted: int


@dataclass(frozen=True, slots=True)
class UploadStarted:
    page: int


@dataclass(frozen=True, slots=True)
class Uploaded:
    page: int
    lines: int
    seconds: float


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """`store`: the store could not take it (deferred). `text_lost`: its export held none of its text (failed)."""

    page: int
    outcome: str
    reason: str
    store: bool
    text_lost: bool


@dataclass(frozen=True, slots=True)
class ProgressPut:
    ok: bool


@dataclass(frozen=True, slots=True)
class LogShipped:
    final: bool
    ok: bool


@dataclass(frozen=True, slots=True)
class InterimPublished:
    ok: bool
    pages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StoredVerified:
    missing: int


@dataclass(frozen=True, slots=True)
class Published:
    """`viewer`: whether iiif.json was among them (it is left out when no page's size is known)."""

    viewer: bool


@dataclass(frozen=True, slots=True)
class DumpPut:
    ok: bool


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """`operation` (the request's class name) could not be done; `permanent`: the bucket cannot exist or does not;
    `workdir_full`: it is the disk, not the store."""

    operation: str
    permanent: bool
    error: str
    workdir_full: bool = False


CODEC = Codec(
    Stop, LogLevel, ErrorLogged,
    ReadSource, Fetch, Decode, Forget,
    SourceRead, SourceFailed, FetchStarted, Fetched, FetchFailed, CacheStored, DecodeStarted, Decoded, DecodeFailed,
    Load, Transcribe,
    Imported, Loaded, LoadFailed, PageStarted, Exported, PageFailed, Dying,
    PutSource, ListStored, Clear, Upload, PutProgress, ShipLog, PublishInterim, VerifyStored, Publish, PutDump, Cease,
    SourcePut, StoredListed, Cleared, UploadStarted, Uploaded, UploadFailed, ProgressPut, LogShipped,
    InterimPublished, StoredVerified, Published, DumpPut, StoreFailed,
)  # fmt: skip
"""Every message of every queue; the supervising process names it to each child as `actors.messages:CODEC`."""
