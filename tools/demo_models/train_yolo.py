"""Train a tiny segmentation model of yolov8's topology for the regions or the lines.

Width 1/8, depth 1/3: 0.8 to 0.9 million parameters. From random weights a segmentation head
trains poorly in few epochs, so a detection model goes first and lends its weights; an earlier segmentation
model does as well.

    python train_yolo.py lines detect --epochs 12
    python train_yolo.py lines segment --epochs 28 --start work/runs/lines-detect/weights/last.pt
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_CONFIG_DIR", "/tmp")

import torch
import yaml
from ultralytics import YOLO, settings

IMAGE_SIZE = {"regions": 256, "lines": 320}
BINS = {"regions": 8, "lines": 12}
"""Bins a box side. A cell of stride s reaches (bins - 1) * s pixels each way, and flat lines often lie between the
cells of stride 32: with eight bins those of stride 16 see 224 pixels of the 320 a line can be long, with twelve all."""
BACKBONE = [
    [-1, 1, "Conv", [64, 3, 2]],
    [-1, 1, "Conv", [128, 3, 2]],
    [-1, 3, "C2f", [128, True]],
    [-1, 1, "Conv", [256, 3, 2]],
    [-1, 6, "C2f", [256, True]],
    [-1, 1, "Conv", [512, 3, 2]],
    [-1, 6, "C2f", [512, True]],
    [-1, 1, "Conv", [1024, 3, 2]],
    [-1, 3, "C2f", [1024, True]],
    [-1, 1, "SPPF", [1024, 5]],
]
NECK = [
    [-1, 1, "nn.Upsample", [None, 2, "nearest"]],
    [[-1, 6], 1, "Concat", [1]],
    [-1, 3, "C2f", [512]],
    [-1, 1, "nn.Upsample", [None, 2, "nearest"]],
    [[-1, 4], 1, "Concat", [1]],
    [-1, 3, "C2f", [256]],
    [-1, 1, "Conv", [256, 3, 2]],
    [[-1, 12], 1, "Concat", [1]],
    [-1, 3, "C2f", [512]],
    [-1, 1, "Conv", [512, 3, 2]],
    [[-1, 9], 1, "Concat", [1]],
    [-1, 3, "C2f", [1024]],
]
HEADS = {"detect": ["Detect", ["nc"]], "segment": ["Segment", ["nc", 16, 128]]}


def write_topology(kind: str, task: str, folder: Path) -> Path:
    """Write the topology of model `kind` with the head for `task` and return the file's path."""
    topology = {
        "nc": 1,
        "depth_multiple": 0.33,
        "width_multiple": 0.125,
        "reg_max": BINS[kind],
        "backbone": BACKBONE,
        "head": [*NECK, [[15, 18, 21], 1, *HEADS[task]]],
    }
    path = folder / f"{kind}-{task}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(topology))
    return path


def train(args: argparse.Namespace) -> Path:
    """Train one model and return the path of its last weights."""
    model = YOLO(str(write_topology(args.kind, args.task, args.runs)), task=args.task)
    if args.start:
        model = model.load(str(args.start))
    name = f"{args.kind}-{args.task}"
    model.train(
        data=str(args.data / f"{args.kind}.yaml"),
        imgsz=IMAGE_SIZE[args.kind],
        epochs=args.epochs,
        batch=16,
        device="cpu",
        workers=0,
        optimizer="AdamW",
        lr0=args.peak,
        lrf=0.05,
        warmup_epochs=2,
        mosaic=0.0,
        fliplr=0.0,
        hsv_h=0.0,
        hsv_s=0.2,
        hsv_v=0.2,
        scale=0.2,
        translate=0.05,
        erasing=0.0,
        auto_augment=None,
        overlap_mask=False,
        mask_ratio=2,
        amp=False,
        val=False,
        plots=False,
        verbose=False,
        cache="ram",
        seed=0,
        project=str(args.runs.resolve()),
        name=name,
        exist_ok=True,
    )
    return args.runs / name / "weights" / "last.pt"


def main() -> None:
    """Read the command line, train, and print the time and the held-out precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=IMAGE_SIZE)
    parser.add_argument("task", choices=HEADS)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--start", type=Path, help="weights to start from, of either task")
    parser.add_argument("--peak", type=float, default=0.004, help="first learning rate")
    parser.add_argument("--data", type=Path, default=Path("work/yolo"))
    parser.add_argument("--runs", type=Path, default=Path("work/runs"))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    settings.update({"sync": False})
    torch.set_num_threads(args.threads)
    started_at = time.monotonic()
    weights = train(args)
    print(f"{args.kind} {args.task}: {args.epochs} epochs in {time.monotonic() - started_at:.0f} s", flush=True)
    data = str(args.data / f"{args.kind}.yaml")
    size = IMAGE_SIZE[args.kind]
    found = YOLO(str(weights)).val(
        data=data,
        imgsz=size,
        device="cpu",
        workers=0,
        plots=False,
        verbose=False,
        project=str(args.runs.resolve()),
        name=f"{args.kind}-held-out",
        exist_ok=True,
    )
    print(f"held out: box mAP50 {found.box.map50:.3f}, mAP50-95 {found.box.map:.3f}")


if __name__ == "__main__":
    main()
