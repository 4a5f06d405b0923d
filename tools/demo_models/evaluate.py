"""Read the demo's volume with plain htrflow and report the character error rate by page and in all.

Runs with htrflow 0.2.6 and with the API that replaces `Collection` by `Document`, whichever is imported.
htrflow itself does not turn pages by their EXIF orientation and clips 16-bit pixels, so each page is first
written as an upright 8-bit RGB PNG. Pages without text are left out of the rate: htrflow makes text up for
a page without regions. What the region model finds on them is reported.

    python evaluate.py
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HOME", str(Path(__file__).resolve().parent))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())
os.environ.setdefault("TQDM_DISABLE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo"))

import numpy as np
import torch
import yaml
from cer import edit_distance
from PIL import Image, ImageOps

DEMO = Path(__file__).resolve().parent.parent / "demo"
Reader = Callable[[Path], list[str]]
"""Reads one image file and returns its lines in reading order; no lines where no region was found."""


def upright_rgb(path: Path) -> Image.Image:
    """Load an image of any kind as upright 8-bit RGB."""
    with Image.open(path) as image:
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) >> 8).astype("uint8"))
        return ImageOps.exif_transpose(image).convert("RGB")


def document_reader(pipeline_file: Path) -> Reader:
    """Make a reader for the API with `Document`."""
    from htrflow.document import Document
    from htrflow.pipeline.pipeline import Pipeline

    pipeline = Pipeline.from_config(str(pipeline_file))

    def read(path: Path) -> list[str]:
        document: Any = pipeline.run(Document(str(path)))
        return [leaf.transcription[0].text for leaf in document.leaves() if leaf is not document and leaf.transcription]

    return read


def collection_reader(pipeline_file: Path) -> Reader:
    """Make a reader for htrflow 0.2.6."""
    from htrflow.pipeline.pipeline import Pipeline
    from htrflow.volume.volume import Collection

    pipeline = Pipeline.from_config(yaml.safe_load(pipeline_file.read_text(encoding="utf-8")))

    def read(path: Path) -> list[str]:
        page: Any = pipeline.run(Collection([str(path)])).pages[0]
        return [leaf.text for leaf in page.leaves() if leaf is not page and leaf.text is not None]

    return read


def make_reader(pipeline_file: Path) -> Reader:
    """Make a reader for the htrflow that is installed."""
    newer = importlib.util.find_spec("htrflow.document") is not None
    return (document_reader if newer else collection_reader)(pipeline_file)


def evaluate(volume: Path, read: Reader, show: bool) -> float:
    """Read every page of `volume`, print its rate and return the rate over all pages with text."""
    truth = json.loads((volume / "truth.json").read_text(encoding="utf-8"))
    edits = characters = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, page in truth.items():
            upright = Path(folder) / f"{Path(name).stem}.png"
            upright_rgb(volume / name).save(upright, compress_level=1)
            started_at = time.monotonic()
            lines = read(upright)
            seconds = time.monotonic() - started_at
            expected = [line["text"] for region in page["regions"] for line in region["lines"]]
            if not expected:
                print(f"{name}  no text      {len(lines):2} lines found  {seconds:.1f} s", flush=True)
                continue
            wanted = "\n".join(expected)
            wrong = edit_distance(wanted, "\n".join(lines))
            edits, characters = edits + wrong, characters + len(wanted)
            found = f"{len(lines):2} of {len(expected):2} lines"
            print(f"{name}  CER {wrong / len(wanted):6.2%}  {found}  {seconds:.1f} s", flush=True)
            if show:
                print("\n".join(f"    {a!r:50} {b!r}" for a, b in zip(expected, lines, strict=False) if a != b))
    return edits / characters


def main() -> None:
    """Read the command line and evaluate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--volume", type=Path, default=DEMO / "volume")
    parser.add_argument("--pipeline", type=Path, default=DEMO / "pipeline.yaml")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print the lines that differ")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rate = evaluate(args.volume, make_reader(args.pipeline), args.show)
    print(f"CER {rate:.2%}")


if __name__ == "__main__":
    main()
