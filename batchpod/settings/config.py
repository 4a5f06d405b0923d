"""One run's settings, resolved and checked: what the environment means as a whole (batchpod/README.md, section 2).

Owns the rules between variables, and the paths that must exist; each variable's own form is environment.py's,
the form of volumes.txt volumes.py's. Touches no network and no model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from actors.uploader import keys
from batchpod.errors import ConfigError
from batchpod.settings import environment
from batchpod.settings.environment import Command, Variable, shown
from batchpod.settings.volumes import VolumeError, read_volume
from supervisor.memory import Memory

_VOLUME = ("VOLUME_REF", "IIIF_MANIFEST_URL", "IMAGES")
"""What a line of volumes.txt stands for."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value as people may see it. `source` is `environment`, `default` or `volumes.txt`."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Config:
    """A field per variable of the table, in its order, and what follows from several of them.

    Sizes are bytes, fields ending in `_s` seconds; None means unset. `iiif_manifest_url` or `images` is set.
    """

    volume_ref: str
    iiif_manifest_url: str | None
    images: tuple[str, ...]
    volumes_path: str | None
    job_completion_index: int | None
    pipeline_path: str
    pipeline_id: str
    s3_bucket: str
    results_url: str
    """Without a slash at its end."""
    s3_endpoint: str | None
    s3_prefix: str
    """Without slashes at its ends."""
    s3_verify_tls: bool
    max_image_width: int
    resume: bool
    max_pages: int
    lookahead_pages: int
    lookahead_bytes: int
    download_concurrency: int
    download_deadline_s: float
    manifest_max_bytes: int
    fetch_max_bytes: int
    max_image_pixels: int
    empty_canvas: str
    image_cache_bucket: str | None
    page_timeout_s: float
    gpu_workers: int
    gpu_pages: int
    gpu_standby: bool
    pixel_arena_bytes: int
    upload_concurrency: int
    upload_backlog_bytes: int
    user_agent: str
    fetch_allow_private: bool
    gpu_start_s: float
    gpu_load_s: float
    aws_shared_credentials_file: str | None
    log_ship_s: float
    workdir_path: str
    termination_log_path: str
    index_failure_count: int | None
    backoff_limit_per_index: int | None
    image_digest: str
    htrflow_base_revision: str
    hf_home: str | None
    hf_hub_offline: bool
    settings: tuple[Setting, ...]

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """The run that `environ` describes.

        Raises:
            ConfigError: with every problem at once, each naming its variable and what was expected.
        """
        from_file = bool(environ.get("VOLUMES_PATH"))
        without = _VOLUME if from_file else ("JOB_COMPLETION_INDEX",)
        values, problems = environment.read(environ, Command.RUN, without)
        volume = _volume_from_file(environ, values) if from_file else _volume_from_environment(environ)
        problems = [*volume, *problems]
        problems += _path_problems(values)
        if problems:
            raise ConfigError(problems)
        values["images"] = values["images"] or ()
        values["s3_prefix"] = values["s3_prefix"].strip("/")
        values["hf_hub_offline"] = bool(values["hf_hub_offline"])
        settings = tuple(_setting(v, environ, values, from_file) for v in environment.of(Command.RUN))
        return cls(**values, settings=settings)

    @property
    def result_prefix(self) -> str:
        """`<S3_PREFIX>/<PIPELINE_ID>/<VOLUME_REF>`, without slashes at its ends."""
        return keys.Keys(self.s3_prefix, self.pipeline_id, self.volume_ref).base

    @property
    def viewer_url(self) -> str:
        """Where browsers find iiif.json; each segment of its key is percent-encoded."""
        return keys.viewer_url(self.results_url, self.s3_prefix, self.pipeline_id, self.volume_ref)

    @property
    def last_attempt(self) -> bool:
        """Whether the index is failed for good if this run fails; False where that is not known."""
        count, limit = self.index_failure_count, self.backoff_limit_per_index
        return count is not None and limit is not None and count >= limit


def arena_problem(config: Config, memory: Memory | None) -> str | None:
    """Why the pixel arena cannot be reserved inside the container's memory limit, or without one in the machine's
    memory; or None."""
    if memory is None:
        total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if config.pixel_arena_bytes < total_bytes:
            return None
        return f"PIXEL_ARENA_BYTES={config.pixel_arena_bytes}: expected less than this machine's memory of {total_bytes} bytes"
    free_bytes = memory.limit_bytes - memory.used_bytes
    if config.pixel_arena_bytes <= free_bytes:
        return None
    return (
        f"PIXEL_ARENA_BYTES={config.pixel_arena_bytes}: expected at most the {max(0, free_bytes)} bytes "
        f"that are free of this container's memory limit of {memory.limit_bytes}"
    )


def _volume_from_file(environ: Mapping[str, str], values: dict[str, Any]) -> list[str]:
    """Fill in the volume from its line of volumes.txt; what is wrong with that."""
    problems = [
        f"{name} is set together with VOLUMES_PATH: expected only one of the two"
        for name in _VOLUME
        if environ.get(name)
    ]
    path, index = values["volumes_path"], values["job_completion_index"]
    if not environ.get("JOB_COMPLETION_INDEX"):
        meaning = environment.BY_NAME["JOB_COMPLETION_INDEX"].meaning
        problems.append(f"JOB_COMPLETION_INDEX is not set: expected {meaning}")
    if path is None or index is None:
        return problems
    try:
        volume = read_volume(path, index)
    except VolumeError as e:
        return [*problems, f"VOLUMES_PATH={shown(path)}: {e}"]
    values |= {"volume_ref": volume.ref, "iiif_manifest_url": volume.manifest_url, "images": volume.images}
    return problems


def _volume_from_environment(environ: Mapping[str, str]) -> list[str]:
    problems = []
    if not environ.get("VOLUME_REF"):
        problems.append(f"VOLUME_REF is not set: expected {environment.BY_NAME['VOLUME_REF'].meaning}")
    given = [name for name in ("IIIF_MANIFEST_URL", "IMAGES") if environ.get(name)]
    if not given:
        problems.append("IIIF_MANIFEST_URL and IMAGES are not set: expected exactly one of them (or VOLUMES_PATH)")
    elif len(given) > 1:
        problems.append("IIIF_MANIFEST_URL and IMAGES are both set: expected exactly one of them")
    return problems


def _path_problems(values: Mapping[str, Any]) -> list[str]:
    problems = []
    if pipeline := values["pipeline_path"]:
        reason = unreadable(pipeline)
        if reason:
            problems.append(f"PIPELINE_PATH={shown(pipeline)}: expected a readable file, but {reason}")
    if workdir := values["workdir_path"]:
        if not os.path.isdir(workdir):
            problems.append(f"WORKDIR_PATH={shown(workdir)}: expected a directory that exists")
        elif not os.access(workdir, os.W_OK | os.X_OK):
            problems.append(f"WORKDIR_PATH={shown(workdir)}: expected a directory that this process may write to")
    return problems


def unreadable(path: str) -> str | None:
    """Why `path` is not a file that can be read, or None."""
    if os.path.exists(path) and not os.path.isfile(path):
        return "it is not a file"
    try:
        with open(path, "rb") as f:
            f.read(1)
    except OSError as e:
        return (e.strerror or type(e).__name__).lower()
    return None


def _setting(variable: Variable, environ: Mapping[str, str], values: Mapping[str, Any], from_file: bool) -> Setting:
    value = values[variable.field]
    if from_file and variable.name in _VOLUME:
        text = " ".join(value) if isinstance(value, tuple) else value or ""
        return Setting(variable.name, shown(text, 200), "volumes.txt" if value else "default")
    text = environ.get(variable.name, "")
    ignored = variable.name == "JOB_COMPLETION_INDEX" and not from_file
    if text and not ignored:
        return Setting(variable.name, shown(text, 200), "environment")
    return Setting(variable.name, variable.default or "", "default")
