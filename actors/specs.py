"""What each actor is told once, at its start. Plain values only; descriptors travel beside them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetcherSpec:
    """`manifest_url` or `images` is set. The arena's descriptor is `descriptors["arena"]` (writable)."""

    volume: str
    manifest_url: str | None
    images: tuple[str, ...]
    pages_path: str
    source_path: str
    max_image_width: int
    max_pages: int
    empty_canvas: str
    download_concurrency: int
    download_deadline_s: float
    lookahead_bytes: int
    manifest_max_bytes: int
    fetch_max_bytes: int
    max_image_pixels: int
    user_agent: str
    allow_private: bool
    arena_bytes: int
    arena_reserved: bool
    decode_threads: int
    cache_bucket: str | None
    results_bucket: str
    s3_endpoint: str | None
    s3_verify_tls: bool
    log_level: str = "INFO"


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """The arena's descriptor is `descriptors["arena"]` (read-only). `gives_way`: its imports can wait for
    whatever else runs. `processes`: how many such as this one share the CPUs."""

    pipeline_path: str
    arena_bytes: int
    pages_in_flight: int
    online: bool
    gives_way: bool = False
    processes: int = 1
    log_level: str = "INFO"


@dataclass(frozen=True, slots=True)
class UploaderSpec:
    """Keys are built from `prefix` (already stripped), `pipeline_id` and `volume` (batchpod/README.md, section 6)."""

    volume: str
    pipeline_id: str
    pipeline_path: str
    bucket: str
    prefix: str
    s3_endpoint: str | None
    s3_verify_tls: bool
    results_url: str
    resume: bool
    from_images: bool
    upload_concurrency: int
    max_image_width: int
    pages_path: str
    source_path: str
    done_path: str
    missing_path: str
    log_dir: str
    run_id: str
    attempt: str
    image_digest: str
    htrflow_base_revision: str
    batchpod_version: str
    log_level: str = "INFO"
