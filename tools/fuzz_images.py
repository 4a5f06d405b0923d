"""Feeds damaged images to the fetcher's decoder: whatever is wrong with them, only an ImageError may come out.

`python -m tools.fuzz_images [ROUNDS] [SEED]` runs so many rounds over every format and prints what got through; the
same seed gives the same damage.
"""

from __future__ import annotations

import functools
import io
import random
import sys
from typing import Any

from PIL import Image

from actors.fetcher.images import ImageError, decode_into, header

MOST_PIXELS = 1_000_000


@functools.cache
def samples() -> dict[str, bytes]:
    """One sound image of every kind that is decoded by code of its own."""
    noise = Image.effect_noise((120, 90), 60)
    colour = Image.merge("RGB", (noise, noise.rotate(180), noise.transpose(Image.Transpose.FLIP_TOP_BOTTOM)))
    kinds: dict[str, tuple[Image.Image, str, dict[str, Any]]] = {
        "JPEG": (colour, "JPEG", {}),
        "JPEG progressive": (colour, "JPEG", {"progressive": True}),
        "JPEG CMYK": (colour.convert("CMYK"), "JPEG", {}),
        "PNG": (colour, "PNG", {}),
        "PNG palette": (colour.convert("P"), "PNG", {"transparency": 3}),
        "GIF": (colour.convert("P"), "GIF", {}),
        "BMP": (colour, "BMP", {}),
        "TIFF": (colour, "TIFF", {}),
        "TIFF LZW": (colour, "TIFF", {"compression": "tiff_lzw"}),
        "TIFF group 4": (noise.convert("1"), "TIFF", {"compression": "group4"}),
        "TIFF JPEG": (colour, "TIFF", {"compression": "jpeg"}),
        "WebP": (colour, "WEBP", {}),
        "JP2": (colour, "JPEG2000", {}),
        "J2K": (colour, "JPEG2000", {"no_jp2": True}),
    }
    made = {}
    for name, (image, kind, options) in kinds.items():
        out = io.BytesIO()
        image.save(out, kind, **options)
        made[name] = out.getvalue()
    return made


def damaged(body: bytes, chance: random.Random) -> bytes:
    """`body` with some of its bytes changed, cut away, repeated or added; often near its start, where the header is."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 6)):
        reach = min(len(data), chance.choice((64, 512, len(data))))
        at = chance.randrange(max(1, reach))
        match chance.randrange(5):
            case 0 if data:
                data[at] ^= 1 << chance.randrange(8)
            case 1 if data:
                data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del data[chance.randrange(len(data) + 1) :]
            case 3:
                data[at:at] = data[at : at + chance.randrange(64)]
            case _:
                data[at:at] = chance.randbytes(chance.randrange(16))
    return bytes(data)


def fuzz(rounds: int, seed: int) -> list[str]:
    """What came out that is not an ImageError, a line each; nothing when all is well."""
    chance = random.Random(seed)
    wrong = []
    for number in range(rounds):
        for name, body in samples().items():
            broken = damaged(body, chance)
            try:
                found = header(broken, MOST_PIXELS)
                decode_into(broken, memoryview(bytearray(found.width * found.height * 3)))
            except ImageError:
                continue
            except Exception as e:  # The very thing that is looked for.
                wrong.append(f"round {number}, {name}: {type(e).__name__}: {e}")
    return wrong


def main() -> int:
    given = [int(argument) for argument in sys.argv[1:3]]
    rounds, seed = (*given, *(1000, 1)[len(given) :])
    found = fuzz(rounds, seed)
    print("\n".join(found) or f"{rounds} rounds over {len(samples())} images: nothing got through")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
