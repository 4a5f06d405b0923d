"""`make demo`: one real volume, from a IIIF manifest to published results, on this machine.

Starts LocalStack (an S3 of its own) and a IIIF origin with the demo volume, runs `batchpod run` with real htrflow on the
CPU, and prints what came out. Nothing is left running, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.demo.results import table
from tools.localstack import CREDENTIALS, NotInstalled, client, running
from tools.origin import running_origin

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUCKET, PIPELINE, VOLUME = "results", "demo", "demo-volume"


def environment(scratch: Path, store_url: str, manifest_url: str) -> dict[str, str]:
    """What a pod's environment would hold."""
    credentials = scratch / "credentials"
    credentials.write_text(CREDENTIALS)
    workdir = scratch / "work"
    workdir.mkdir()
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    return inherited | {
        "VOLUME_REF": VOLUME,
        "IIIF_MANIFEST_URL": manifest_url,
        "PIPELINE_PATH": str(HERE / "pipeline.yaml"),
        "PIPELINE_ID": PIPELINE,
        "S3_BUCKET": BUCKET,
        "S3_ENDPOINT": store_url,
        "RESULTS_URL": f"{store_url}/{BUCKET}",
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials),
        "AWS_EC2_METADATA_DISABLED": "true",
        "WORKDIR_PATH": str(workdir),
        "TERMINATION_LOG_PATH": str(scratch / "termination.json"),
        "HF_HOME": str(HERE.parent / "demo_models"),
        "HF_HUB_OFFLINE": "1",
        "YOLO_CONFIG_DIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }


@contextlib.contextmanager
def scene(pages: int | None = None) -> Iterator[tuple[dict[str, str], Any]]:
    """The store with its bucket, the origin, and the environment of a run between them; and an S3 client."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="batchpod-demo-")))
        print("starting LocalStack (S3) and the image server ...", flush=True)
        store = stack.enter_context(running())
        origin = stack.enter_context(running_origin(HERE / "volume", pages=pages))
        s3 = client(store.url)
        stack.callback(s3.close)
        s3.create_bucket(Bucket=BUCKET)
        yield environment(scratch, store.url, origin.manifest_url), s3


def run(environ: dict[str, str]) -> int:
    """`batchpod run`; a Ctrl-C reaches it through the terminal and is waited for."""
    process = subprocess.Popen([sys.executable, "-m", "batchpod", "run"], env=environ, cwd=ROOT)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--twice", action="store_true", help="run again afterwards: nothing is left to do then")
    arguments = parser.parse_args()
    try:
        with scene() as (environ, s3):
            code = run(environ)
            if code == 0 and arguments.twice:
                code = run(environ)
            if code == 0:
                truth = json.loads((HERE / "volume" / "truth.json").read_bytes())
                print(table(s3, BUCKET, f"{PIPELINE}/{VOLUME}", truth, environ["RESULTS_URL"]))
            return code
    except NotInstalled as e:
        print(e, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
