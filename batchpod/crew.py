"""Who works in a run: how each actor is started, and what of the environment it may see.

Owns the plans (entry point, settings, narrowed environment, descriptors); when they start and what they are told is
services.py's and pool.py's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from actors.messages import CODEC
from actors.specs import FetcherSpec, GpuSpec, UploaderSpec
from batchpod import __version__
from batchpod.settings.config import Config
from batchpod.workdir import Workdir
from supervisor import arena
from supervisor.process import Plan

_EVERYONE = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|PYTHON\w+|MALLOC_\w+|COVERAGE_\w+"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE"
)
_PROXY = re.compile(r"(http|https|all|no)_proxy", re.IGNORECASE)
_S3 = re.compile(r"AWS_\w+")
FIRST = "gpu-0"
_GPU = re.compile(
    r"(CUDA|NVIDIA|HF|TRANSFORMERS|TORCH|TORCHINDUCTOR|PYTORCH|OMP|MKL|OPENBLAS|KMP|NCCL|TRITON|YOLO|ULTRALYTICS|XDG"
    r"|MPL|HTRFLOW|TOKENIZERS)\w*"
)
_HUB_SECRET = re.compile(r"(HF|HUGGING_FACE_HUB)_TOKEN|HUGGINGFACE_TOKEN")

OOM_FIRST, OOM_LATER = 800, 200
"""oom_score_adj: the kernel should pick a gpu process before any other of the pod."""


def narrowed(environ: Mapping[str, str], *allowed: re.Pattern[str]) -> dict[str, str]:
    """The variables whose whole name one of `allowed` (or the common list) matches."""
    return {n: v for n, v in environ.items() if any(p.fullmatch(n) for p in (_EVERYONE, *allowed))}


class Crew:
    """Makes the plans; holds the arena's two descriptors while the run lasts."""

    def __init__(self, config: Config, environ: Mapping[str, str], workdir: Workdir, run_id: str) -> None:
        self.config, self.workdir, self._environ, self._run_id = config, workdir, environ, run_id
        self._arena = arena.create(config.pixel_arena_bytes)
        self._arena_read_only = arena.read_only(self._arena)
        self._arena_reserved = False

    def close(self) -> None:
        os.close(self._arena)
        os.close(self._arena_read_only)

    def fetcher(self) -> Plan:
        c = self.config
        spec = FetcherSpec(
            volume=c.volume_ref,
            manifest_url=c.iiif_manifest_url,
            images=c.images,
            pages_path=self.workdir.pages,
            source_path=self.workdir.source,
            max_image_width=c.max_image_width,
            max_pages=c.max_pages,
            empty_canvas=c.empty_canvas,
            download_concurrency=c.download_concurrency,
            download_deadline_s=c.download_deadline_s,
            lookahead_bytes=c.lookahead_bytes,
            manifest_max_bytes=c.manifest_max_bytes,
            fetch_max_bytes=c.fetch_max_bytes,
            max_image_pixels=c.max_image_pixels,
            user_agent=c.user_agent,
            allow_private=c.fetch_allow_private,
            arena_bytes=c.pixel_arena_bytes,
            arena_reserved=self._arena_reserved,
            decode_threads=2,
            cache_bucket=c.image_cache_bucket,
            results_bucket=c.s3_bucket,
            s3_endpoint=c.s3_endpoint,
            s3_verify_tls=c.s3_verify_tls,
        )
        self._arena_reserved = True
        environ = narrowed(self._environ, _PROXY, *([_S3] if c.image_cache_bucket else []))
        return self._plan("fetcher", spec, environ, {"arena": self._arena}, OOM_LATER)

    def gpu(self, name: str) -> Plan:
        online = not self.config.hf_hub_offline
        spec = GpuSpec(
            pipeline_path=self.config.pipeline_path,
            arena_bytes=self.config.pixel_arena_bytes,
            pages_in_flight=self.config.gpu_pages,
            online=online,
            gives_way=name != FIRST,
            processes=self.config.gpu_workers,
        )
        environ = narrowed(self._environ, _GPU, *([_PROXY, _HUB_SECRET] if online else []))
        if not online:
            environ = {n: v for n, v in environ.items() if not _HUB_SECRET.fullmatch(n)}
        return self._plan(name, spec, environ, {"arena": self._arena_read_only}, OOM_FIRST, "gpu")

    def uploader(self) -> Plan:
        c = self.config
        spec = UploaderSpec(
            volume=c.volume_ref,
            pipeline_id=c.pipeline_id,
            pipeline_path=c.pipeline_path,
            bucket=c.s3_bucket,
            prefix=c.s3_prefix,
            s3_endpoint=c.s3_endpoint,
            s3_verify_tls=c.s3_verify_tls,
            results_url=c.results_url,
            resume=c.resume,
            from_images=bool(c.images),
            upload_concurrency=c.upload_concurrency,
            max_image_width=c.max_image_width,
            pages_path=self.workdir.pages,
            source_path=self.workdir.source,
            done_path=self.workdir.done,
            missing_path=self.workdir.missing,
            log_dir=self.workdir.log,
            run_id=self._run_id,
            attempt=str(c.index_failure_count if c.index_failure_count is not None else 0),
            image_digest=c.image_digest,
            htrflow_base_revision=c.htrflow_base_revision,
            batchpod_version=__version__,
        )
        return self._plan("uploader", spec, narrowed(self._environ, _S3), {}, OOM_LATER)

    def _plan(
        self, name: str, spec: object, environ: dict[str, str], fds: dict[str, int], oom: int, kind: str = ""
    ) -> Plan:
        return Plan(
            name=name,
            entry=f"actors.{kind or name}.actor:main",
            codec=CODEC,
            codec_name="actors.messages:CODEC",
            spec=spec,
            environment=environ,
            descriptors=fds,
            oom_score_adj=oom,
        )


def devices(workers: int, environ: Mapping[str, str]) -> list[str | None]:
    """The value of CUDA_VISIBLE_DEVICES for each gpu actor; one actor alone sees what the pod sees."""
    if workers == 1:
        return [None]
    visible = [d.strip() for d in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d.strip()]
    return [visible[n % len(visible)] if visible else str(n) for n in range(workers)]
