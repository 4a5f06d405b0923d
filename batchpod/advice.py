"""Every sentence with which a run or a warm-up tells a person what happened and what to do next.

Owns the run log's last line (batchpod/README.md, section 4). What went wrong is said by the error; the half after
the dash is chosen here: by the cause where the run knows it, else by the stage and by what the error says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from actors.redact import for_log
from batchpod.errors import Cause
from batchpod.verdict import ExitCode, Verdict

LINE_CHARACTERS = 3500


@dataclass(frozen=True, slots=True)
class Advice:
    """`happened` is a clause, `remedy` an imperative; neither ends in a full stop."""

    happened: str
    remedy: str


_BY_CAUSE = {
    Cause.CONFIG: Advice(
        "the environment does not describe a run",
        "correct the variables named (`batchpod check` looks at all of them without starting a run)",
    ),
    Cause.WORKDIR_IN_USE: Advice(
        "another run is alive in this working directory", "give each run a WORKDIR_PATH of its own"
    ),
    Cause.BUCKET: Advice(
        "the results bucket cannot be used", "create the bucket, or correct S3_BUCKET and S3_ENDPOINT"
    ),
    Cause.STORE_DOWN: Advice(
        "the results store does not do what the run asks of it",
        "see that the store is up, has room and accepts the credentials, and that S3_ENDPOINT names it",
    ),
    Cause.ORIGIN_DOWN: Advice(
        "the image server gives no pages now",
        "see that the image server is up and lets this pod in (a lower DOWNLOAD_CONCURRENCY asks less of it)",
    ),
    Cause.WORKDIR_FULL: Advice(
        "the working directory has no room left", "give WORKDIR_PATH more room, or lower UPLOAD_BACKLOG_BYTES"
    ),
    Cause.MEMORY: Advice(
        "the container is about to run out of memory",
        "give it more memory, or lower LOOKAHEAD_BYTES, PIXEL_ARENA_BYTES, GPU_PAGES or the batch sizes",
    ),
    Cause.GPU_START: Advice(
        "no gpu process came up in three tries",
        "look in the run log for what each try said, and at the node's GPU and the model cache",
    ),
    Cause.GPU_BROKEN: Advice(
        "the GPU or a model is broken on this node, so no page is blamed",
        "have the node's GPU looked at, and the models if it is well",
    ),
    Cause.UNKILLABLE: Advice(
        "a process is stuck in the GPU's driver and cannot be ended", "have the node's GPU looked at"
    ),
    Cause.ACTOR_RESTARTS: Advice(
        "one of the run's processes keeps dying", "look in the run log for what it said before each death"
    ),
    Cause.PAGES_LEFT: Advice(
        "some pages could not be fetched or stored now",
        "see that the image server and the store are up and serve those pages",
    ),
    Cause.NO_IMAGES: Advice(
        "not one page has an image that can be used, so no model has seen any",
        "see that the image server gives this pod images, and that MAX_IMAGE_PIXELS, FETCH_MAX_BYTES and "
        "PIXEL_ARENA_BYTES allow for their size",
    ),
    Cause.NO_PAGES: Advice(
        "not one page came out, and no model is to blame for that", "look in the run log for what each page failed of"
    ),
    Cause.ALL_FAILED: Advice(
        "not one page came out, which points to a broken model or GPU rather than to the pages",
        "try the pipeline on a page that is known to work, and have the node's GPU looked at",
    ),
    Cause.TEXT_LOST: Advice(
        "the pipeline recognises text but leaves it where the exports do not look for it",
        "put a step that segments regions before the one that segments lines",
    ),
    Cause.STOPPED: Advice(
        "the pod was told to stop, by a drain, its deadline or a person",
        "if its deadline stopped it, allow the pod more time",
    ),
    Cause.UNEXPECTED: Advice(
        "something failed that nobody foresaw", "look in the run log for the traceback and report it"
    ),
}

_WARMUP_CONFIG = Advice("the environment does not describe a warm-up", "correct the variables named")
_MANIFEST = Advice(
    "what this address gives is not a manifest with pages",
    "open it in a browser and correct the address, or have the manifest mended",
)
_CREDENTIALS = Advice(
    "the store does not accept this run's credentials",
    "see that AWS_SHARED_CREDENTIALS_FILE names keys that may list, read, write and delete in the bucket",
)
_DENIED = r"AccessDenied|InvalidAccessKey|Signature|[Cc]redential|status 403"
_SKEWED = r"TimeTooSkewed|clock"
_CLOCK = Advice("this node's clock and the store's do not agree", "have the node's clock set")
_PIPELINE = Advice("the pipeline cannot be built as it is written", "correct the pipeline file")

_BY_TEXT: dict[tuple[str, bool], tuple[tuple[str, Advice], ...]] = {
    ("setup", True): (
        (
            r"HTTP 40[13]\b",
            Advice("the server does not let this pod read it", "ask for access, or give a public manifest"),
        ),
        (r"HTTP 4\d\d\b", Advice("there is no manifest at this address", "correct the manifest's URL")),
        (
            r"^this is a Collection",
            Advice("this is a Collection and not a Manifest", "make a volume of each of its manifests"),
        ),
        (
            r"MANIFEST_MAX_BYTES",
            Advice("it is larger than a manifest may be here", "raise MANIFEST_MAX_BYTES if it is right"),
        ),
        (
            r"has no image",
            Advice(
                "a canvas of the manifest has no image",
                "have the manifest mended, or set EMPTY_CANVAS=record to transcribe the others",
            ),
        ),
        (
            r"not (an? )?(http|URL)|is not allowed|refused|private|link-local|redirect",
            Advice("this address must not or cannot be asked", "correct the manifest's URL"),
        ),
        (r"", _MANIFEST),
    ),
    ("setup", False): (
        (r"HTTP 429\b", Advice("the server asks for fewer requests", "run fewer of its volumes at once")),
        (r"HTTP 5\d\d\b", Advice("the manifest's server has a problem of its own", "see that it is well")),
    ),
    ("load", True): (
        (
            r"^the warm-up marker ",
            Advice(
                "the models are in the cache, but the batch pods would not be told so",
                "make the folder that holds HF_HOME writable for this pod",
            ),
        ),
        (
            r"[Gg]ated",
            Advice("a model's files are gated", "accept its terms on the Hub and give the warm-up a token"),
        ),
        (
            r"RepositoryNotFound|RevisionNotFound|RepoNotFound|DisabledRepo",
            Advice("a model or its revision does not exist on the Hub", "correct it in the pipeline file"),
        ),
        (
            r"compiler|compilation",
            Advice("the image has no compiler", "take that setting out of the pipeline"),
        ),
        (
            r"\(.*\btransformers [\d.]+",
            Advice(
                "these models and this image's libraries do not fit together, or a setting is not theirs",
                "correct the pipeline file, or use the image that the models were made for",
            ),
        ),
        (r"", _PIPELINE),
    ),
    ("load", False): (
        (
            r"ConnectError|ConnectTimeout|Name or service not known|name resolution|Max retries exceeded",
            Advice(
                "the Hub cannot be reached from here",
                "let this pod out to the Hub, or fill the model cache with a warm-up and set HF_HUB_OFFLINE=1",
            ),
        ),
        (
            r"LocalEntryNotFound|Could not find any file|[Oo]ffline|cached|cannot find|[Cc]an't load|HF_HOME",
            Advice("a model is not in the model cache", "run the pipeline's warm-up to its end first"),
        ),
        (
            r"No space left|\[Errno (28|122)\]",
            Advice("a disk of this pod has no room left", "give the volume that holds the model cache more room"),
        ),
        (
            r"CUDA|device|kernel image|GPU",
            Advice("the GPU of this node cannot run the models", "have the node's GPU and driver looked at"),
        ),
    ),
}
"""By stage and permanence: what the error says, and the advice; the first that fits. A warm-up loads too."""

_BY_STAGE = {
    "config": _BY_CAUSE[Cause.CONFIG],
    "setup": Advice(
        "the volume's page list cannot be read now",
        "see that the manifest's server is up and lets this pod in",
    ),
    "resume": _BY_CAUSE[Cause.STORE_DOWN],
    "load": Advice("the pipeline's models cannot be loaded now", "look at the model cache, its disk and the node"),
    "warmup": Advice("the models cannot be downloaded now", "see that the Hub can be reached and the cache has room"),
    "stream": Advice("the pages cannot all be processed", "look in the run log for the first error"),
    "verify": _BY_CAUSE[Cause.PAGES_LEFT],
    "publish": _BY_CAUSE[Cause.STORE_DOWN],
}


def complete(volume: str, pages: int, processed: int, seconds: float, viewer_url: str) -> str:
    """The last line of a run that published its volume; `processed` leaves out pages kept by resume."""
    count = f"{pages} pages ({processed} processed)"
    return f"[{volume}] COMPLETE {count} in {seconds:.0f}s, viewer: {viewer_url}"


def failure(verdict: Verdict, last_attempt: bool = False) -> str:
    """The last line of a run, or of a warm-up, that ends with `verdict`: one line, redacted, clipped."""
    error = " ".join(for_log(verdict.error).split())
    if len(error) > LINE_CHARACTERS:
        error = error[:LINE_CHARACTERS] + "..."
    advice = _advice(verdict)
    again = "run the warm-up again" if verdict.stage == "warmup" else "run the volume again"
    if verdict.permanent:
        what = f"{advice.happened}, and trying again changes nothing: {advice.remedy}, then {again}."
        return f"permanent failure in {verdict.stage}: {error} — {what}"
    if last_attempt:
        what = f"{advice.happened}, and no attempt is left: {advice.remedy}, then {again} (it keeps its pages)."
        return f"transient failure in {verdict.stage} on the last attempt: {error} — {what}"
    kept = "files that are downloaded" if verdict.stage == "warmup" else "pages that are stored"
    what = f"{advice.happened}: {advice.remedy}; the next attempt keeps the {kept} and does the rest."
    return f"transient failure in {verdict.stage}: {error} — {what}"


def _advice(verdict: Verdict) -> Advice:
    if verdict.code is ExitCode.SIGTERM:
        return _BY_CAUSE[Cause.STOPPED]
    if verdict.cause is Cause.CONFIG and verdict.stage == "warmup":
        return _WARMUP_CONFIG
    if verdict.cause is Cause.STORE_DOWN:
        for says, advice in ((_SKEWED, _CLOCK), (_DENIED, _CREDENTIALS)):
            if re.search(says, verdict.error):
                return advice
    if verdict.cause in _BY_CAUSE:
        return _BY_CAUSE[verdict.cause]
    stage = "load" if verdict.stage == "warmup" and verdict.permanent else verdict.stage
    for says, advice in _BY_TEXT.get((stage, verdict.permanent), ()):
        if re.search(says, verdict.error):
            return advice
    return _BY_STAGE.get(verdict.stage, _BY_CAUSE[Cause.UNEXPECTED])
