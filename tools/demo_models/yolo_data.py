"""The two segmentation models' training data: pages for the regions, region crops for the lines.

Writes ultralytics' layout (`images/` and `labels/` by split, one YAML for each model). A label is a
rectangle given as a polygon, so the same data trains a detection and a segmentation head. Pages without
text go to both with empty labels, to teach that stamps, pictures and bare paper are no text: where the region
model finds nothing, htrflow gives the whole page to the line model.

    python yolo_data.py --out work/yolo
"""

import argparse
import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from line_crops import cut_line, wobbly_polygon
from pages import Block, Box, Page, blank_page, stamp_page, text_page
from PIL import Image

SEEDS = {"train": 2_000_000, "val": 3_000_000}
EMPTY_SHARE = 6
"""One page in so many has no text."""
NAMES = {"regions": "text_region", "lines": "text_line"}


def page_of(seed: int) -> Page:
    """Draw the page of `seed`: every `EMPTY_SHARE`-th without text, by turns blank and with stamps."""
    if seed % EMPTY_SHARE:
        return text_page(seed)
    return blank_page(seed) if seed // EMPTY_SHARE % 3 == 0 else stamp_page(seed)


def label(box: Box, frame: Box) -> str:
    """Return `box` as a polygon label relative to `frame`, clipped to it; class 0."""
    left, top, right, bottom = frame
    xs = [min(max(x, left), right) - left for x in (box[0], box[2])]
    ys = [min(max(y, top), bottom) - top for y in (box[1], box[3])]
    (x0, x1), (y0, y1) = ([x / (right - left) for x in xs], [y / (bottom - top) for y in ys])
    return "0 " + " ".join(f"{value:.5f}" for value in (x0, y0, x1, y0, x1, y1, x0, y1))


def write(root: Path, split: str, name: str, image: Image.Image, labels: Sequence[str]) -> None:
    """Write one image and its labels."""
    image.save(root / "images" / split / f"{name}.jpg", quality=88)
    (root / "labels" / split / f"{name}.txt").write_text("\n".join(labels))


def write_region_crop(root: Path, split: str, name: str, page: Page, block: Block, rng: random.Random) -> None:
    """Cut a block out as the region model would, white outside its polygon, and write it with its lines."""
    loose = tuple(edge + rng.randint(-8, 8) for edge in block.box)
    polygon = wobbly_polygon(rng, loose)
    xs, ys = zip(*polygon, strict=True)
    frame = (
        max(0, int(min(xs))),
        max(0, int(min(ys))),
        min(page.image.width, int(max(xs)) + 1),
        min(page.image.height, int(max(ys)) + 1),
    )
    write(root, split, name, cut_line(page.image, polygon), [label(line.box, frame) for line in block.lines])


def write_page(out: Path, split: str, index: int) -> None:
    """Write the page `index` of a split to both data sets."""
    seed = SEEDS[split] + index
    page, rng = page_of(seed), random.Random(~seed)
    whole = (0, 0, *page.image.size)
    write(out / "regions", split, f"{index:05}", page.image, [label(block.box, whole) for block in page.blocks])
    if not page.blocks:
        write(out / "lines", split, f"{index:05}", page.image, [])
    for number, block in enumerate(page.blocks):
        write_region_crop(out / "lines", split, f"{index:05}_{number}", page, block, rng)


def main() -> None:
    """Write both data sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=360)
    parser.add_argument("--held-out", type=int, default=36)
    parser.add_argument("--out", type=Path, default=Path("work/yolo"))
    args = parser.parse_args()
    for kind, name in NAMES.items():
        for split in SEEDS:
            (args.out / kind / "images" / split).mkdir(parents=True, exist_ok=True)
            (args.out / kind / "labels" / split).mkdir(parents=True, exist_ok=True)
        root = (args.out / kind).resolve()
        (args.out / f"{kind}.yaml").write_text(
            f"path: {root}\ntrain: images/train\nval: images/val\nnames:\n  0: {name}\n"
        )
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for split, count in (("train", args.pages), ("val", args.held_out)):
            list(pool.map(partial(write_page, args.out, split), range(count), chunksize=8))


if __name__ == "__main__":
    main()
