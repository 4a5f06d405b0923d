"""Where everything of one volume lies in the results bucket, and under which URL a browser finds it.

Keys are raw text; a URL has each of its segments percent-encoded (batchpod/README.md, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from actors.messages import page_name

XML, JSON = "application/xml", "application/json"
YAML, TEXT = "text/yaml", "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one volume. `prefix` is the deployment's, without slashes at its ends, and may be empty."""

    prefix: str
    pipeline_id: str
    volume: str

    @property
    def base(self) -> str:
        """`<prefix>/<pipeline>/<volume>`, without a slash at its end."""
        return self._under(self.pipeline_id, self.volume)

    @property
    def source(self) -> str:
        return self._under("sources", self.pipeline_id, self.volume, "manifest.json")

    @property
    def run_log(self) -> str:
        return f"status/logs/{self.pipeline_id}/{self.volume}.txt"

    @property
    def dump(self) -> str:
        return f"status/dumps/{self.pipeline_id}/{self.volume}.json"

    @property
    def pages(self) -> str:
        """The PAGE files' prefix, with a slash at its end."""
        return f"{self.base}/page/"

    @property
    def altos(self) -> str:
        """The ALTO files' prefix, with a slash at its end."""
        return f"{self.base}/alto/"

    @property
    def manifest(self) -> str:
        return f"{self.base}/manifest.json"

    @property
    def viewer(self) -> str:
        return f"{self.base}/iiif.json"

    @property
    def progress(self) -> str:
        return f"{self.base}/progress.json"

    @property
    def pipeline(self) -> str:
        return f"{self.base}/pipeline.yaml"

    def page(self, number: int) -> str:
        return f"{self.pages}{page_name(number)}.xml"

    def alto(self, number: int) -> str:
        return f"{self.altos}{page_name(number)}.xml"

    def _under(self, *segments: str) -> str:
        return "/".join([self.prefix, *segments] if self.prefix else segments)


def url(results_url: str, key: str) -> str:
    """The URL of `key` under the browser-reachable base `results_url`."""
    return f"{results_url.rstrip('/')}/{'/'.join(quote(segment, safe='') for segment in key.split('/'))}"


def viewer_url(results_url: str, prefix: str, pipeline_id: str, volume: str) -> str:
    """Where a IIIF viewer finds the volume's `iiif.json`."""
    return url(results_url, Keys(prefix, pipeline_id, volume).viewer)
