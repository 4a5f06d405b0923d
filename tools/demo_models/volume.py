"""Render the demo's volume: page images of many kinds and what they say.

Writes `0001.jpg` and so on and `truth.json` to `tools/demo/volume/`. The seeds lie outside those of the
training data. Most pages are plain JPEGs; the others are what an archive's scans hold besides: blank pages,
a picture, an image stored on its side, grey, CMYK and 16-bit files.

    python volume.py
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pages import Page, blank_page, stamp_page, text_page
from PIL import Image

OUT = Path(__file__).resolve().parent.parent / "demo" / "volume"
FIRST_SEED = 7_000_000
QUALITY = 80
ORIENTATION_TAG = 0x0112
Writer = Callable[[Image.Image, Path], None]
Drawer = Callable[[int], Page]


def write_jpeg(image: Image.Image, path: Path) -> None:
    """Write an ordinary colour JPEG."""
    image.save(path, quality=QUALITY)


def write_turned(image: Image.Image, path: Path) -> None:
    """Write a JPEG on its side, with EXIF orientation 6: turn it a quarter clockwise."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    image.transpose(Image.Transpose.ROTATE_90).save(path, quality=QUALITY, exif=exif)


def write_turned_back(image: Image.Image, path: Path) -> None:
    """Write a JPEG on its other side, with orientation 8: turn it a quarter counter-clockwise."""
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 8
    image.transpose(Image.Transpose.ROTATE_270).save(path, quality=QUALITY, exif=exif)


def write_cmyk(image: Image.Image, path: Path) -> None:
    """Write a CMYK JPEG: with Adobe's marker, and its inks stored inverted as that marker implies."""
    image.convert("CMYK").save(path, quality=QUALITY)


def write_grey(image: Image.Image, path: Path) -> None:
    """Write an 8-bit grey image, PNG or JPEG by the name.

    A PNG keeps 32 levels only: paper grain does not compress, and the file would be several times as large.
    """
    grey = image.convert("L")
    if path.suffix == ".png":
        grey = grey.point([min(255, round(level / 8) * 8) for level in range(256)])
    grey.save(path, optimize=True)


def write_grey_16_bit(image: Image.Image, path: Path) -> None:
    """Write a 16-bit grey TIFF with Deflate and 32 levels spread over the whole range."""
    grey = np.asarray(image.convert("L"), "uint16") // 8 * 8
    wide = Image.fromarray((grey * 257).astype("uint16"))
    wide.save(path, compression="tiff_adobe_deflate")


@dataclass(frozen=True, slots=True)
class Sheet:
    """One page of the volume: what to draw and how to store it."""

    draw: Drawer
    write: Writer = write_jpeg
    suffix: str = ".jpg"


def one_block(seed: int) -> Page:
    """Draw a page with one block of text."""
    return text_page(seed, block_count=1)


def two_blocks(seed: int) -> Page:
    """Draw a page with two blocks of text, one above the other."""
    return text_page(seed, block_count=2)


SHEETS = (
    Sheet(one_block),
    Sheet(two_blocks),
    Sheet(one_block),
    Sheet(two_blocks),
    Sheet(blank_page),
    Sheet(one_block),
    Sheet(two_blocks, write_turned),
    Sheet(one_block),
    Sheet(two_blocks, write_grey, ".png"),
    Sheet(stamp_page),
    Sheet(one_block, write_cmyk),
    Sheet(two_blocks),
    Sheet(one_block, write_grey_16_bit, ".tif"),
    Sheet(two_blocks),
    Sheet(one_block),
    Sheet(two_blocks),
    Sheet(one_block, write_grey),
    Sheet(two_blocks),
    Sheet(one_block, write_turned_back),
    Sheet(two_blocks),
    Sheet(one_block),
    Sheet(two_blocks),
    Sheet(one_block),
    Sheet(two_blocks),
    Sheet(one_block),
    Sheet(two_blocks),
)


def truth_of(page: Page) -> dict[str, object]:
    """Return a page's upright size and, in reading order, its regions and lines with boxes and text."""
    return {
        "width": page.image.width,
        "height": page.image.height,
        "regions": [
            {"box": block.box, "lines": [{"box": line.box, "text": line.text} for line in block.lines]}
            for block in page.blocks
        ],
    }


def main() -> None:
    """Render every sheet and write the truth beside them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    truth = {}
    for number, sheet in enumerate(SHEETS, start=1):
        page, name = sheet.draw(FIRST_SEED + number), f"{number:04}{sheet.suffix}"
        sheet.write(page.image, args.out / name)
        truth[name] = truth_of(page)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(page, ensure_ascii=False)}" for name, page in truth.items())
    (args.out / "truth.json").write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    print(f"{len(SHEETS)} pages, {sum(path.stat().st_size for path in args.out.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
