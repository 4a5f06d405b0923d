"""The results page without Docker: nginx on a loopback port, configured from the same template as the container.

`python -m tools.results_page` runs the demo behind it and leaves the page open until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from string import Template

from tools.localstack import NotInstalled, bound_to_parent, free_port

FOLDER = Path(__file__).resolve().parent.parent / "container" / "results"
START_S = 10.0

MAIN = """
daemon off;
master_process off;
pid $directory/nginx.pid;
error_log stderr warn;
events {}
http {
    include /etc/nginx/mime.types;
    access_log off;
    client_body_temp_path $directory/body;
    proxy_temp_path $directory/proxy;
    fastcgi_temp_path $directory/fastcgi;
    uwsgi_temp_path $directory/uwsgi;
    scgi_temp_path $directory/scgi;
    include $directory/server.conf;
}
"""


def build_site() -> Path:
    """The page with its viewer, installed from the npm registry by the lock file; a second call finds it there.

    Raises NotInstalled where there is no npm, CalledProcessError where the registry cannot be reached.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not installed: the results page's viewer comes from the npm registry.")
    site, lock = FOLDER / "site", FOLDER / "package-lock.json"
    installed = FOLDER / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=FOLDER, check=True)
    subprocess.run([npm, "run", "--silent", "build"], cwd=FOLDER, check=True)
    return site


@contextlib.contextmanager
def serving(site: Path, *, store: str, bucket: str, origin: str, volume: str, port: int) -> Iterator[str]:
    """Serve the page, the bucket at `/results/` and the origin's images on 127.0.0.1:`port`; yields the base URL.

    `volume` is the result prefix that the start page opens. Raises NotInstalled without nginx.
    """
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx is None:
        raise NotInstalled("nginx is not installed: install Debian's package nginx-light.")
    values = {"LISTEN": f"127.0.0.1:{port}", "SITE": site, "STORE": store, "BUCKET": bucket}
    values |= {"ORIGIN": origin, "VOLUME": volume}
    with tempfile.TemporaryDirectory(prefix="results-") as directory:
        template = Template((FOLDER / "nginx.conf.template").read_text())
        Path(directory, "server.conf").write_text(template.safe_substitute(values))
        main = Path(directory, "nginx.conf")
        main.write_text(Template(MAIN).substitute(directory=directory))
        command = [nginx, "-e", "stderr", "-p", directory, "-c", str(main)]
        process = subprocess.Popen(bound_to_parent(command), stdin=subprocess.DEVNULL)
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}/viewer/")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), opener.open(url, timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nginx did not serve {url}; its own words are above")


def main() -> int:
    """Run the demo with its results behind the page, then wait for Ctrl-C."""
    from tools.demo.__main__ import BUCKET, PIPELINE, VOLUME, run, scene

    # A shell that starts this in the background has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    try:
        site = build_site()
        with scene() as (environ, _):
            origin, _, path = environ["IIIF_MANIFEST_URL"].partition("/iiif/")
            environ |= {"IIIF_MANIFEST_URL": f"{base}/iiif/{path}", "RESULTS_URL": f"{base}/results"}
            store, volume = environ["S3_ENDPOINT"], f"{PIPELINE}/{VOLUME}"
            with serving(site, store=store, bucket=BUCKET, origin=origin, volume=volume, port=port):
                code = run(environ)
                if code == 0:
                    print(f"\nopen {base}/ in a browser (Ctrl-C ends it)", flush=True)
                    with contextlib.suppress(KeyboardInterrupt):
                        signal.pause()
                return code
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
