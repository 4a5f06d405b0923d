"""The one table of environment variables: what the code reads, `--help` prints and `check` looks for near
misses in.

Owns each variable's name, default, form and meaning (batchpod/README.md, sections 2 and 10). What several variables
mean together is config.py's.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from actors.fetcher import urls
from actors.fetcher.errors import Denied
from actors.redact import for_log
from batchpod import __version__


class Command(StrEnum):
    RUN = "run"
    WARMUP = "warmup"
    WAIT_WARMUP = "wait-warmup"
    PAGES = "pages"
    CHECK = "check"


class Refused(ValueError):
    """A value, or the part of it that is named, does not have the form it should have."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A form of value: `expected` completes the sentence "expected …"; `parse` raises Refused."""

    expected: str
    parse: Callable[[str], Any]


def _text(value: str) -> str:
    if not value.isprintable():
        raise Refused(value)
    return value


def _identifier(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", value) or ".." in value or value == ".":
        raise Refused(value)
    return value


def _url(value: str) -> str:
    url = value.strip()
    try:
        urls.parse(url)
    except Denied as e:
        raise Refused(url) from e
    return _text(url)


def _base_url(value: str) -> str:
    url = _url(value)
    if "?" in url or "#" in url:
        raise Refused(url)
    return url.rstrip("/")


def _urls(value: str) -> tuple[str, ...]:
    found = tuple(_url(word) for word in value.split())
    if not found:
        raise Refused(value)
    return found


def _boolean(value: str) -> bool:
    word = value.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise Refused(value)


def _hub_offline(value: str) -> bool:
    """As huggingface_hub reads it: true for these words, false for any other."""
    return value.upper() in ("1", "ON", "YES", "TRUE")


def _whole(value: str, least: int, most: int = 10**18) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value.strip()) or not least <= int(value) <= most:
        raise Refused(value)
    return int(value)


def _size(value: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})(Ki|Mi|Gi)?", value.strip())
    if match is None or int(match[1]) < 1:
        raise Refused(value)
    size = int(match[1]) * {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}[match[2]]
    if size >= 1 << 63:
        raise Refused(value)
    return size


def _seconds(value: str, zero: bool) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?|\.[0-9]+", value.strip()):
        raise Refused(value)
    seconds = float(value)
    if not math.isfinite(seconds) or (seconds == 0 and not zero):
        raise Refused(value)
    return seconds


def _choice(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip() not in words:
            raise Refused(value)
        return value.strip()

    return parse


TEXT = Kind("one line of printable text", _text)
IDENTIFIER = Kind("only letters, digits, '.', '_' and '-', without '..'", _identifier)
URL = Kind("an http or https URL", _url)
BASE_URL = Kind("an http or https URL without a query", _base_url)
URLS = Kind("http or https URLs, with white space between them", _urls)
BOOLEAN = Kind("true or false (or 1 0 yes no on off)", _boolean)
HUB_OFFLINE = Kind("1 or 0", _hub_offline)
COUNT = Kind("a whole number of at least 1", lambda value: _whole(value, 1))
COUNT_OR_ZERO = Kind("a whole number of at least 0", lambda value: _whole(value, 0))
AT_ONCE = Kind("a whole number from 1 to 1000", lambda value: _whole(value, 1, 1000))
SIZE = Kind("a number of bytes from 1 to 2^63, plain or with the suffix Ki, Mi or Gi", _size)
SECONDS = Kind("a number of seconds above 0", lambda value: _seconds(value, zero=False))
SECONDS_OR_ZERO = Kind("a number of seconds of at least 0", lambda value: _seconds(value, zero=True))

_RUN = frozenset({Command.RUN, Command.CHECK})
_SOURCE = _RUN | {Command.PAGES}
_PIPELINE = _RUN | {Command.WARMUP}
_RECIPE = _PIPELINE | {Command.WAIT_WARMUP}
_CACHE = frozenset({Command.WARMUP, Command.WAIT_WARMUP})
_NONE: frozenset[Command] = frozenset()


@dataclass(frozen=True, slots=True)
class Variable:
    """`default` is written as one would write it in the environment; None means unset.

    `required` names the commands that refuse to start without it.
    """

    name: str
    default: str | None
    kind: Kind
    meaning: str
    commands: frozenset[Command] = _RUN
    required: frozenset[Command] = _NONE

    @property
    def field(self) -> str:
        """The name of its field in Config: durations end in `_s` there."""
        return re.sub(r"_seconds$", "_s", self.name.lower())


VARIABLES = (
    Variable("VOLUME_REF", None, IDENTIFIER, "the volume's id: last segment of the result prefix"),
    Variable("IIIF_MANIFEST_URL", None, URL, "the volume's manifest (Presentation 2 or 3); this or IMAGES"),
    Variable("IMAGES", None, URLS, "the volume's image URLs, with white space between them"),
    Variable("VOLUMES_PATH", None, TEXT, "a volumes.txt to take the volume from, in place of the three above"),
    Variable("JOB_COMPLETION_INDEX", None, COUNT_OR_ZERO, "the volume's line in VOLUMES_PATH, from 0"),
    Variable("PIPELINE_PATH", None, TEXT, "the pipeline file (YAML)", _PIPELINE, _PIPELINE),
    Variable("PIPELINE_ID", None, IDENTIFIER, "the recipe's id: segment of the result prefix", _RECIPE, _RECIPE),
    Variable("S3_BUCKET", None, TEXT, "the results bucket", required=_RUN),
    Variable("RESULTS_URL", None, BASE_URL, "the base URL at which browsers reach the results", required=_RUN),
    Variable("S3_ENDPOINT", None, URL, "an S3-compatible endpoint; switches to path-style addressing"),
    Variable("S3_PREFIX", "", TEXT, "goes before every key but the run log's"),
    Variable("S3_VERIFY_TLS", "true", BOOLEAN, "whether the endpoint's certificate is checked"),
    Variable("MAX_IMAGE_WIDTH", "2500", COUNT, "width asked of the IIIF Image API", _SOURCE),
    Variable("RESUME", "true", BOOLEAN, "keep the pages that are stored; false redoes every page"),
    Variable("MAX_PAGES", "0", COUNT_OR_ZERO, "only the first so many pages; 0 = all", _SOURCE),
    Variable("LOOKAHEAD_PAGES", "64", COUNT, "pages fetched ahead of the GPU"),
    Variable("LOOKAHEAD_BYTES", "1Gi", SIZE, "bytes of fetched pages held ahead of the GPU"),
    Variable("DOWNLOAD_CONCURRENCY", "12", AT_ONCE, "downloads at once"),
    Variable(
        "DOWNLOAD_DEADLINE_SECONDS",
        "300",
        SECONDS,
        "budget of one download attempt, or of the manifest",
        _SOURCE,
    ),
    Variable("MANIFEST_MAX_BYTES", "16Mi", SIZE, "the largest manifest, decoded", _SOURCE),
    Variable("FETCH_MAX_BYTES", "64Mi", SIZE, "the largest image body, decoded"),
    Variable("MAX_IMAGE_PIXELS", "100000000", COUNT_OR_ZERO, "the largest width x height of an image; 0 = any"),
    Variable(
        "EMPTY_CANVAS",
        "refuse",
        Kind("refuse or record", _choice("refuse", "record")),
        "a canvas without an image: refuse ends the run, record counts a failed page and goes on",
        _SOURCE,
    ),
    Variable("IMAGE_CACHE_BUCKET", None, TEXT, "a private bucket that keeps the source images"),
    Variable("PAGE_TIMEOUT_SECONDS", "600", SECONDS, "a page without progress for this long is given up"),
    Variable("GPU_WORKERS", "1", AT_ONCE, "gpu processes; with more than one each sees its own device"),
    Variable("GPU_PAGES", "2", AT_ONCE, "pages in flight inside one gpu process"),
    Variable("GPU_STANDBY", "true", BOOLEAN, "keep a spare gpu process with its imports done"),
    Variable("PIXEL_ARENA_BYTES", "512Mi", SIZE, "shared memory for decoded pages"),
    Variable("UPLOAD_CONCURRENCY", "4", AT_ONCE, "uploads at once"),
    Variable("UPLOAD_BACKLOG_BYTES", "256Mi", SIZE, "exported files that may wait for the store"),
    Variable("USER_AGENT", f"batchpod/{__version__}", TEXT, "sent to origins", _SOURCE),
    Variable(
        "FETCH_ALLOW_PRIVATE",
        "true",
        BOOLEAN,
        "whether origins at private and loopback addresses are asked",
        _SOURCE,
    ),
    Variable("GPU_START_SECONDS", "300", SECONDS, "deadline of a gpu process's imports"),
    Variable("GPU_LOAD_SECONDS", "900", SECONDS, "deadline of a gpu process's model load"),
    Variable("AWS_SHARED_CREDENTIALS_FILE", None, TEXT, "the S3 credentials; unset = botocore's own default"),
    Variable("LOG_SHIP_SECONDS", "15", SECONDS_OR_ZERO, "how often the run log is shipped; 0 = only at the end"),
    Variable("WORKDIR_PATH", "/work", TEXT, "scratch space; the debug socket lives here"),
    Variable("TERMINATION_LOG_PATH", "/dev/termination-log", TEXT, "where the termination message goes", _PIPELINE),
    Variable("INDEX_FAILURE_COUNT", None, COUNT_OR_ZERO, "how often this index has failed already"),
    Variable(
        "BACKOFF_LIMIT_PER_INDEX",
        None,
        COUNT_OR_ZERO,
        "how often it may; both set: the last attempt is known",
    ),
    Variable("IMAGE_DIGEST", "unknown", TEXT, "the container image, for provenance"),
    Variable("HTRFLOW_BASE_REVISION", "unknown", TEXT, "htrflow's revision in it, for provenance"),
    Variable("HF_HOME", None, TEXT, "the model cache; unset = huggingface_hub's own default", _RECIPE, _CACHE),
    Variable("HF_HUB_OFFLINE", None, HUB_OFFLINE, "1 = models come from the cache alone", _PIPELINE),
    Variable(
        "WARMUP_WAIT_SECONDS",
        "900",
        SECONDS_OR_ZERO,
        "how long to wait for the warm-up's marker",
        frozenset({Command.WAIT_WARMUP}),
    ),
)
BY_NAME = {variable.name: variable for variable in VARIABLES}


_OTHERS = (
    "Read by the libraries below as everywhere: HTTP_PROXY, HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE; with the Hub",
    "HF_TOKEN_PATH and HF_ENDPOINT; with models CUDA_VISIBLE_DEVICES and OMP_NUM_THREADS.",
)


def of(command: Command) -> tuple[Variable, ...]:
    """The variables that `command` reads, in the table's order."""
    return tuple(v for v in VARIABLES if command in v.commands)


def read(environ: Mapping[str, str], command: Command, without: Iterable[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """The values of `command`'s variables by `Variable.field`, and what is wrong with them, a sentence each.

    An empty string counts as unset. An unset variable without a default, and a bad value, is None. The
    variables named in `without` are None whatever they hold.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for variable in of(command):
        text = "" if variable.name in without else environ.get(variable.name, "")
        values[variable.field] = None
        if not text and command in variable.required:
            problems.append(f"{variable.name} is not set: expected {_meaning(variable, command)}")
        elif text or variable.default is not None:
            try:
                values[variable.field] = variable.kind.parse(text or variable.default or "")
            except Refused as e:
                problems.append(f"{variable.name}={shown(str(e))}: expected {variable.kind.expected}")
    return values, problems


def shown(value: str, characters: int = 120) -> str:
    """A value as a message may show it: redacted, on one line, and clipped."""
    text = for_log(value)
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= characters else text[:characters] + "…"


def near_misses(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that is set, is not in the table, and looks like one that is."""
    sentences = []
    for name in sorted(environ):
        if name in BY_NAME or not environ[name]:
            continue
        close = difflib.get_close_matches(name.upper().replace("-", "_"), BY_NAME, n=1, cutoff=0.84)
        if close:
            sentences.append(f"{name} is set but nothing reads it: is {close[0]} meant?")
    return sentences


def help_text(command: Command) -> str:
    """The `environment:` part of `command`'s --help, with the defaults that the code uses."""
    variables = of(command)
    width = max(len(v.name) for v in variables) + 2
    lines = ["environment (an empty value counts as unset):"]
    for v in variables:
        if command in v.required:
            note = "required"
        elif v.default:
            note = f"default: {v.default}"
        else:
            note = ""
        lines.append(f"  {v.name:<{width}}{_meaning(v, command)}" + (f" [{note}]" if note else ""))
    return "\n".join([*lines, "", *_OTHERS])


def _meaning(variable: Variable, command: Command) -> str:
    """What it means where it cannot be unset, or can."""
    return variable.meaning.partition("; unset")[0] if command in variable.required else variable.meaning
