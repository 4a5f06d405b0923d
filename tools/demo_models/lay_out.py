"""Lay trained models out as a Hugging Face cache, so that they load by name and without a network.

YOLO checkpoints become half precision (1.8 MB each) and lose their optimizer, their metrics and the trainer's
own paths. Every file is written plainly, without links or blobs, with mode 0644: safetensors writes 0600,
which another user of the checkout could not read.

    python lay_out.py --regions work/runs/regions-segment/weights/last.pt \
        --lines work/runs/lines-segment/weights/last.pt --trocr work/trocr
"""

import argparse
import shutil
from pathlib import Path

import torch

HUB = Path(__file__).resolve().parent / "hub"
OWNER = "demo"
REVISION = "0a5c1e27b94d83f6602de71c4b8f95ad3e170c62"
"""The revision `tools/demo/pipeline.yaml` asks for: a made-up name of the right form, no hash of content."""

TROCR_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def snapshot(hub: Path, name: str) -> Path:
    """Make the repository `OWNER/name` anew with `refs/main` and return its empty snapshot folder."""
    repository = hub / f"models--{OWNER}--{name}"
    shutil.rmtree(repository, ignore_errors=True)
    folder = repository / "snapshots" / REVISION
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return folder


def strip(checkpoint: Path, out: Path) -> None:
    """Write the half-precision model of a YOLO checkpoint and no more than loading it needs."""
    kept = torch.load(checkpoint, map_location="cpu", weights_only=False)
    model = (kept["ema"] or kept["model"]).half()
    arguments = {name: kept["train_args"][name] for name in ("task", "imgsz")}
    model.args = arguments
    model.yaml["yaml_file"] = Path(model.yaml["yaml_file"]).name
    vars(model).pop("pt_path", None)
    about = {name: kept[name] for name in ("version", "license", "docs")}
    torch.save({"model": model, "train_args": arguments, **about}, out)


def open_up(hub: Path) -> None:
    """Give folders mode 0755 and files 0644, whatever the umask."""
    for path in (hub, *hub.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def main() -> None:
    """Lay out the models named on the command line; the others stay as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--regions", type=Path, help="YOLO checkpoint")
    parser.add_argument("--lines", type=Path, help="YOLO checkpoint")
    parser.add_argument("--trocr", type=Path, help="folder with model and processor")
    parser.add_argument("--hub", type=Path, default=HUB)
    args = parser.parse_args()
    for name, checkpoint in (("regions", args.regions), ("lines", args.lines)):
        if checkpoint:
            strip(checkpoint, snapshot(args.hub, name) / "model.pt")
    if args.trocr:
        folder = snapshot(args.hub, "trocr")
        for file in TROCR_FILES:
            shutil.copyfile(args.trocr / file, folder / file)
    open_up(args.hub)
    size = sum(path.stat().st_size for path in args.hub.rglob("*") if path.is_file())
    print(f"{args.hub}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
