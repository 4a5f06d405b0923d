"""Crops of text lines for the recogniser, cut from synthetic pages the way the line model cuts them.

htrflow crops a line to its polygon's box and paints everything outside the polygon white. The crops here
get a wobbly polygon and white corners too, so that the recogniser has seen what it will be given.

    python line_crops.py --pages 1500 --out work/lines.npz
"""

import argparse
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from pages import Box, text_page
from PIL import Image, ImageDraw

LINE_HEIGHT, LINE_WIDTH = 32, 320
TRAINING_SEED, VALIDATION_SEED = 0, 1_000_000
CROPS_PER_LINE = 2
POLYGON_STEP = 60
"""Pixels between two points of the polygon along a line."""


def wobbly_polygon(rng: random.Random, box: Box) -> list[tuple[float, float]]:
    """Return a polygon close to `box`: cut corners, edges that wander by a pixel or two."""
    left, top, right, bottom = (edge + rng.gauss(0, sigma) for edge, sigma in zip(box, (3, 2, 3, 2), strict=True))
    corner = rng.uniform(0, 6)
    steps = max(2, round((right - left) / POLYGON_STEP))
    xs = [left + corner + (right - left - 2 * corner) * step / steps for step in range(steps + 1)]
    upper = [(x, top + rng.gauss(0, 1)) for x in xs]
    lower = [(x, bottom + rng.gauss(0, 1)) for x in reversed(xs)]
    return [
        (left, top + corner),
        *upper,
        (right, top + corner),
        (right, bottom - corner),
        *lower,
        (left, bottom - corner),
    ]


def cut_line(image: Image.Image, polygon: list[tuple[float, float]]) -> Image.Image:
    """Crop `image` to the polygon's box with white outside the polygon."""
    xs, ys = zip(*polygon, strict=True)
    left, top = max(0, int(min(xs))), max(0, int(min(ys)))
    right, bottom = min(image.width, int(max(xs)) + 1), min(image.height, int(max(ys)) + 1)
    mask = Image.new("L", (right - left, bottom - top), 0)
    ImageDraw.Draw(mask).polygon([(x - left, y - top) for x, y in polygon], fill=255)
    crop = image.crop((left, top, right, bottom))
    return Image.composite(crop, Image.new("RGB", crop.size, "white"), mask)


def fit(crop: Image.Image) -> np.ndarray:
    """Squeeze a crop to the recogniser's input: uint8 of shape (32, 320, 3)."""
    return np.asarray(crop.resize((LINE_WIDTH, LINE_HEIGHT), Image.Resampling.BILINEAR))


def crops_of_page(seed: int) -> list[tuple[np.ndarray, str]]:
    """Draw the page of `seed` and cut each of its lines `CROPS_PER_LINE` times."""
    page, rng = text_page(seed), random.Random(~seed)
    return [
        (fit(cut_line(page.image, wobbly_polygon(rng, line.box))), line.text)
        for block in page.blocks
        for line in block.lines
        for _ in range(CROPS_PER_LINE)
    ]


def build(first_seed: int, pages: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the crops of `pages` pages, uint8 of shape (n, 32, 320, 3), and their texts."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = [
            item
            for page in pool.map(crops_of_page, range(first_seed, first_seed + pages), chunksize=16)
            for item in page
        ]
    return np.stack([crop for crop, _ in found]), np.array([text for _, text in found])


def main() -> None:
    """Write training and validation crops to one compressed file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1500, help="training pages, about 19 crops each")
    parser.add_argument("--out", type=Path, default=Path("work/lines.npz"))
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    crops, texts = build(TRAINING_SEED, args.pages)
    held_out_crops, held_out_texts = build(VALIDATION_SEED, 20)
    np.savez(args.out, crops=crops, texts=texts, held_out_crops=held_out_crops, held_out_texts=held_out_texts)
    print(f"{len(crops)} training crops, {len(held_out_crops)} held out")


if __name__ == "__main__":
    main()
