"""Synthetic pages of handwriting with their regions, lines and text. Deterministic for a seed.

Owns the drawing: paper, ink, stamps, where blocks and lines go. It writes no files; the training scripts and
`volume.py` do. Needs the Debian packages named in `FONTS`; the fonts are not part of the repository.
"""

import random
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from vocabulary import MAX_CHARACTERS, next_words

Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels of the page, right and bottom exclusive."""

FONT_ROOT = "/usr/share/fonts"
FONTS = (
    (f"{FONT_ROOT}/opentype/dancingscript/DancingScript-Regular.otf", 1.0),  # fonts-dancingscript
    (f"{FONT_ROOT}/truetype/breip/breipfont.ttf", 1.0),  # fonts-breip
    (f"{FONT_ROOT}/truetype/fifthhorseman/dkg.ttf", 0.9),  # fonts-dkg-handwriting
)
"""Font files and the factor that brings each to the same apparent size."""

PAGE_SIZE = (800, 1100)
MARGIN = 45
LINE_PAD_X = 8
"""Pixels a line's box reaches past its ink to left and right; 4 clips the first letter now and then."""
LINE_PAD_Y = 2
REGION_PAD = 8
MIN_LINES = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text: its box on the page and what it says."""

    box: Box
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """One text region with its lines from top to bottom."""

    box: Box
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """An upright RGB page and its blocks in reading order."""

    image: Image.Image
    blocks: tuple[Block, ...]


@cache
def load_font(index: int, size: int) -> ImageFont.FreeTypeFont:
    """Load the font `FONTS[index]` at `size` pixels, before its own factor."""
    path, factor = FONTS[index]
    return ImageFont.truetype(path, int(size * factor))


def line_text(rng: random.Random, max_width: int, font: ImageFont.FreeTypeFont) -> str:
    """Draw words until the line is `max_width` pixels or `MAX_CHARACTERS` long, at times fewer."""
    text = ""
    while True:
        longer = f"{text} {next_words(rng)}".lstrip()
        if len(longer) > MAX_CHARACTERS or font.getlength(longer) > max_width:
            if text:
                return text
            continue
        text = longer
        if text.count(" ") >= 1 and rng.random() < 0.1:
            return text


def draw_line(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, font: ImageFont.FreeTypeFont, ink: int
) -> Line:
    """Write one line of text and return it with its padded box."""
    draw.text(at, text, font=font, fill=ink)
    left, top, right, bottom = draw.textbbox(at, text, font=font)
    _, tall_top, _, tall_bottom = draw.textbbox(at, "bgÖp", font=font)
    return Line(
        (
            int(left) - LINE_PAD_X,
            int(min(top, tall_top)) - LINE_PAD_Y,
            int(right) + LINE_PAD_X,
            int(max(bottom, tall_bottom)) + LINE_PAD_Y,
        ),
        text,
    )


def draw_block(
    draw: ImageDraw.ImageDraw, rng: random.Random, font_index: int, top: int, max_lines: int
) -> Block | None:
    """Write one block at height `top`, or nothing if fewer than `MIN_LINES` lines fit on the page."""
    width, height = PAGE_SIZE
    size = rng.randint(30, 38)
    font = load_font(font_index, size)
    pitch = int(size * rng.uniform(1.45, 1.75))
    count = min(rng.randint(4, max_lines), (height - MARGIN - REGION_PAD - top) // pitch - 1)
    left = rng.randint(MARGIN, 270)
    max_width = rng.randint(340, min(490, width - MARGIN - left))
    if count < MIN_LINES:
        return None
    lines = []
    for row in range(count):
        at = (left + rng.randint(0, 8), top + row * pitch + rng.randint(-2, 2))
        lines.append(draw_line(draw, at, line_text(rng, max_width, font), font, rng.randint(200, 255)))
    boxes = np.array([line.box for line in lines])
    low, high = boxes.min(axis=0), boxes.max(axis=0)
    box = (
        max(0, int(low[0]) - REGION_PAD),
        max(0, int(low[1]) - REGION_PAD),
        min(width, int(high[2]) + REGION_PAD),
        min(height, int(high[3]) + REGION_PAD),
    )
    return Block(box, tuple(lines))


def draw_stamp(draw: ImageDraw.ImageDraw, rng: random.Random, centre: tuple[int, int], radius: int) -> None:
    """Draw a round or square stamp without letters: rings, a star or bars inside."""
    x, y = centre
    ink = rng.randint(120, 230)
    outline = draw.ellipse if rng.random() < 0.7 else draw.rectangle
    for inset in (0, radius // 6, radius // 4)[: rng.randint(1, 3)]:
        reach = radius - inset
        outline((x - reach, y - reach, x + reach, y + reach), outline=ink, width=rng.randint(2, 6))
    if rng.random() < 0.5:
        for spoke in range(rng.randint(3, 7)):
            angle = 2 * np.pi * spoke / 7
            end = (x + 0.6 * radius * float(np.cos(angle)), y + 0.6 * radius * float(np.sin(angle)))
            draw.line((centre, end), fill=ink, width=rng.randint(2, 8))
    else:
        half = radius // 3
        draw.rectangle((x - half, y - half, x + half, y + half), fill=rng.randint(60, 180))


def draw_picture(draw: ImageDraw.ImageDraw, rng: random.Random, box: Box) -> None:
    """Draw a framed landscape: filled shapes in shades of ink."""
    left, top, right, bottom = box
    draw.rectangle(box, fill=rng.randint(30, 90), outline=rng.randint(150, 230), width=rng.randint(2, 8))
    horizon = top + int((bottom - top) * rng.uniform(0.4, 0.7))
    for _ in range(rng.randint(1, 4)):
        foot, reach = rng.randint(left, right), rng.randint(40, 160)
        peak = (foot, rng.randint(top + 10, max(top + 11, horizon - 5)))
        slope = [(max(left, foot - reach), horizon), peak, (min(right, foot + reach), horizon)]
        draw.polygon(slope, fill=rng.randint(90, 200))
    draw.rectangle((left, horizon, right, bottom), fill=rng.randint(60, 160))


def develop(ink: Image.Image, rng: random.Random, noise: np.random.RandomState, grey: bool) -> Image.Image:
    """Put ink (0 none, 255 full) on coloured, uneven, grainy paper."""
    width, height = ink.size
    paper = np.array((rng.randint(215, 250), rng.randint(205, 238), rng.randint(180, 220)), "float32")
    colour = np.array([rng.randint(20, 70), rng.randint(20, 60), rng.randint(30, 80)], "float32")
    stains = noise.normal(0, 6, (height // 50 + 2, width // 50 + 2)).astype("float32")
    uneven = np.asarray(Image.fromarray(stains).resize((width, height), Image.Resampling.BICUBIC))[..., None]
    cover = np.asarray(ink.filter(ImageFilter.GaussianBlur(0.5)), "float32")[..., None] / 255
    grain = noise.normal(0, 5, (height, width, 1)).astype("float32")
    pixels = (paper + uneven) * (1 - cover) + colour * cover + grain
    image = Image.fromarray(pixels.clip(0, 255).astype("uint8"))
    return image.convert("L").convert("RGB") if grey else image


def text_page(seed: int, block_count: int | None = None) -> Page:
    """Draw a page of one or two blocks of text in one hand; a stamp may stand in the free space below."""
    rng, noise = random.Random(seed), np.random.RandomState(seed % 2**32)
    width, height = PAGE_SIZE
    ink = Image.new("L", PAGE_SIZE, 0)
    draw = ImageDraw.Draw(ink)
    wanted = block_count or rng.choice((1, 2))
    hand, top = rng.randrange(len(FONTS)), rng.randint(60, 140)
    blocks: list[Block] = []
    for _ in range(wanted):
        block = draw_block(draw, rng, hand, top, max_lines=8 if wanted == 2 else 11)
        if block is None:
            break
        blocks.append(block)
        top = block.box[3] + rng.randint(40, 100)
    room = height - MARGIN - blocks[-1].box[3]
    if room > 240 and rng.random() < 0.3:
        radius = rng.randint(50, 90)
        draw_stamp(draw, rng, (rng.randint(150, width - 150), height - MARGIN - radius - 20), radius)
    return Page(develop(ink, rng, noise, grey=rng.random() < 0.15), tuple(blocks))


def blank_page(seed: int) -> Page:
    """Draw paper without ink, with a crease now and then."""
    rng, noise = random.Random(seed), np.random.RandomState(seed % 2**32)
    ink = Image.new("L", PAGE_SIZE, 0)
    if rng.random() < 0.4:
        x = rng.randint(0, PAGE_SIZE[0])
        ImageDraw.Draw(ink).line((x, 0, x + rng.randint(-20, 20), PAGE_SIZE[1]), fill=rng.randint(15, 60), width=2)
    return Page(develop(ink, rng, noise, grey=rng.random() < 0.15), ())


def stamp_page(seed: int) -> Page:
    """Draw a page with stamps or a picture and no text."""
    rng, noise = random.Random(seed), np.random.RandomState(seed % 2**32)
    width, height = PAGE_SIZE
    ink = Image.new("L", PAGE_SIZE, 0)
    draw = ImageDraw.Draw(ink)
    if rng.random() < 0.6:
        left, top = rng.randint(60, 250), rng.randint(60, 300)
        draw_picture(draw, rng, (left, top, rng.randint(left + 200, width - 60), rng.randint(top + 160, height - 400)))
    for _ in range(rng.randint(1, 2)):
        radius = rng.randint(50, 120)
        draw_stamp(draw, rng, (rng.randint(150, width - 150), rng.randint(height - 350, height - 150)), radius)
    return Page(develop(ink, rng, noise, grey=rng.random() < 0.15), ())
