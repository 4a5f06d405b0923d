"""Images as they come from archives: sizes from headers, and pixels against values worked out by hand."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from actors.fetcher.images import (
    Header,
    ImageError,
    TooManyPixels,
    decode_into,
    header,
    looks_like_html,
    signature,
)
from tools.fuzz_images import fuzz, samples

RED, GREEN, BLUE, WHITE, BLACK, GREY = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255,) * 3, (0,) * 3, (128,) * 3
Pixels = np.ndarray[Any, np.dtype[np.uint8]]
LIMIT = 100_000_000


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def decoded(body: bytes) -> Pixels:
    """The pixels, rows x columns x RGB, written to a block as an actor would."""
    found = header(body, LIMIT)
    block = bytearray(found.width * found.height * 3)
    decode_into(body, memoryview(block))
    return np.frombuffer(block, np.uint8).reshape(found.height, found.width, 3)


def near(pixels: Pixels, expected: Any, within: int) -> bool:
    return bool((np.abs(pixels.astype(int) - np.array(expected)) <= within).all())


def corners() -> Image.Image:
    """48 x 32, its quarters red, green (right), blue (below), white: no turn leaves it as it is."""
    image = Image.new("RGB", (48, 32), WHITE)
    image.paste(RED, (0, 0, 24, 16))
    image.paste(GREEN, (24, 0, 48, 16))
    image.paste(BLUE, (0, 16, 24, 32))
    return image


def quarters(pixels: Pixels) -> list[tuple[int, ...]]:
    """The colour in the middle of each quarter: above left, above right, below left, below right."""
    height, width = pixels.shape[:2]
    places = [(height * v // 4, width * h // 4) for v in (1, 3) for h in (1, 3)]
    return [tuple(int(255 * round(int(c) / 255)) for c in pixels[place]) for place in places]


UPRIGHT = [RED, GREEN, BLUE, WHITE]

# Exif 2.32, tag 274: where the stored row 0 and column 0 belong in the upright picture.
TURNED = {
    1: [RED, GREEN, BLUE, WHITE],
    2: [GREEN, RED, WHITE, BLUE],
    3: [WHITE, BLUE, GREEN, RED],
    4: [BLUE, WHITE, RED, GREEN],
    5: [RED, BLUE, GREEN, WHITE],
    6: [BLUE, RED, WHITE, GREEN],
    7: [WHITE, GREEN, BLUE, RED],
    8: [GREEN, WHITE, RED, BLUE],
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_come_upright_whatever_the_exif_orientation(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    body = saved(corners(), kind, exif=exif, **options)
    found = header(body, LIMIT)
    assert (found.width, found.height) == ((32, 48) if orientation >= 5 else (48, 32))
    assert quarters(decoded(body)) == TURNED[orientation]


def test_a_png_is_turned_by_an_exif_chunk_after_its_pixels() -> None:
    plain = saved(corners(), "PNG")
    exif = Image.Exif()
    exif[0x0112] = 6
    data = exif.tobytes().removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I4s", len(data), b"eXIf") + data + struct.pack(">I", zlib.crc32(b"eXIf" + data))
    body = plain[:-12] + chunk + plain[-12:]
    assert header(body, LIMIT) == Header("PNG", 32, 48)
    assert quarters(decoded(body)) == TURNED[6]


@pytest.mark.parametrize("broken", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_turns_nothing(broken: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = broken
    assert quarters(decoded(saved(corners(), "JPEG", exif=exif, quality=95))) == UPRIGHT


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("JPEG", "JPEG", {"quality": 95}),
        ("JPEG", "JPEG", {"quality": 95, "progressive": True}),
        ("PNG", "PNG", {}),
        ("GIF", "GIF", {}),
        ("BMP", "BMP", {}),
        ("TIFF", "TIFF", {}),
        ("TIFF", "TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", "TIFF", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", "TIFF", {"compression": "jpeg", "quality": 95}),
        ("TIFF", "TIFF", {"big_tiff": True}),
        ("WEBP", "WebP", {"lossless": True}),
        ("JPEG2000", "JP2", {}),
        ("JPEG2000", "J2K", {"no_jp2": True}),
    ],
)
def test_every_accepted_format_is_known_by_its_bytes_and_decodes(kind: str, name: str, options: dict[str, Any]) -> None:
    body = saved(corners(), kind, **options)
    assert signature(body) == name
    assert header(body, LIMIT) == Header(name, 48, 32)
    assert quarters(decoded(body)) == UPRIGHT


def test_a_cmyk_jpeg_is_not_inverted() -> None:
    # No ink but a full plate of cyan: red is 0, green and blue are 255.
    body = saved(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "JPEG", quality=95)
    assert b"Adobe" in body
    assert near(decoded(body), (0, 255, 255), 4)


def test_a_cmyk_jpeg_without_adobes_marker_holds_its_values_as_they_are() -> None:
    # Written the Adobe way, then its marker (APP14) taken away: the stored values now say the opposite.
    body = saved(Image.new("CMYK", (16, 16), (255, 0, 0, 255)), "JPEG", quality=95)
    at = body.index(b"\xff\xee")
    bare = body[:at] + body[at + 2 + int.from_bytes(body[at + 2 : at + 4], "big") :]
    assert near(decoded(bare), (255, 0, 0), 4)


def test_a_grey_jpeg_gives_equal_channels() -> None:
    assert near(decoded(saved(Image.new("L", (9, 7), 77), "JPEG", quality=95)), (77, 77, 77), 2)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bit_grey_is_scaled_and_not_clipped(kind: str) -> None:
    values = np.array([[0, 257, 32768, 65535]], np.uint16)
    body = saved(Image.fromarray(values), kind)
    assert near(decoded(body)[0], [(0,) * 3, (1,) * 3, (127,) * 3, (255,) * 3], 1)


def test_sixteen_bit_colour_in_a_png_is_scaled() -> None:
    row = b"\0" + struct.pack(">6H", 65535, 32768, 0, 257, 0, 65535)
    assert near(decoded(_png(2, 1, 16, 2, row))[0], [(255, 128, 0), (1, 0, 255)], 1)


def test_a_16_bit_tiff_whose_zero_is_white_is_turned_round() -> None:
    body = bytearray(saved(Image.fromarray(np.array([[0, 65535, 16384, 49152]], np.uint16)), "TIFF"))
    (at,) = struct.unpack_from("<I", body, 4)
    for entry in range(at + 2, at + 2 + 12 * struct.unpack_from("<H", body, at)[0], 12):
        if struct.unpack_from("<H", body, entry)[0] == 262:
            struct.pack_into("<H", body, entry + 8, 0)
    assert near(decoded(bytes(body))[0], [WHITE, BLACK, (191,) * 3, (64,) * 3], 1)


def test_floating_point_grey_is_scaled() -> None:
    body = saved(Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)), "TIFF")
    assert near(decoded(body)[0], [BLACK, GREY, WHITE], 1)


def test_alpha_lies_on_white() -> None:
    half = Image.new("RGBA", (3, 1))
    half.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 128)])
    assert near(decoded(saved(half, "PNG"))[0], [RED, WHITE, (127,) * 3], 1)
    grey = Image.new("LA", (2, 1))
    grey.putdata([(0, 255), (0, 0)])
    assert near(decoded(saved(grey, "PNG"))[0], [BLACK, WHITE], 0)


def test_a_palette_with_a_transparent_colour_lies_on_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *BLUE])
    image.putdata([0, 1])
    assert near(decoded(saved(image, "PNG", transparency=1))[0], [RED, WHITE], 0)
    assert near(decoded(saved(image, "PNG"))[0], [RED, BLUE], 0)


@pytest.mark.parametrize("options", [{}, {"compression": "group4"}])
def test_a_one_bit_tiff_is_black_and_white(options: dict[str, str]) -> None:
    image = Image.new("1", (16, 8), 1)
    image.paste(0, (0, 0, 8, 8))
    pixels = decoded(saved(image, "TIFF", **options))
    assert near(pixels[:, :8], BLACK, 0)
    assert near(pixels[:, 8:], WHITE, 0)


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "WEBP"])
def test_of_several_pictures_the_first_is_taken(kind: str) -> None:
    rest = [Image.new("RGB", (20, 20), colour) for colour in (GREEN, BLUE)]
    body = saved(Image.new("RGB", (20, 20), RED), kind, save_all=True, append_images=rest)
    assert near(decoded(body), RED, 4)


def test_a_single_pixel_is_a_page() -> None:
    body = saved(Image.new("RGB", (1, 1), RED), "JPEG", quality=95)
    assert header(body, LIMIT) == Header("JPEG", 1, 1)
    assert near(decoded(body), RED, 3)


def test_a_large_picture_is_copied_whole() -> None:
    rows, columns = np.mgrid[0:700, 0:900]
    expected = np.stack([rows % 256, columns % 256, (rows + columns) % 256], axis=2).astype(np.uint8)
    assert (decoded(saved(Image.fromarray(expected), "PNG")) == expected).all()


def test_a_picture_over_the_limit_is_judged_by_its_header_alone() -> None:
    body = _png(20000, 10000, 1, 0, b"")
    with pytest.raises(TooManyPixels, match="20000 x 10000 pixels are more than the 100000000 of MAX_IMAGE_PIXELS"):
        header(body, LIMIT)
    assert header(body, 0) == Header("PNG", 20000, 10000)


@pytest.mark.parametrize("name", sorted(samples()))
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_picture_that_breaks_off_fails_and_is_never_filled_up(name: str, share: float) -> None:
    body = samples()[name]
    with pytest.raises(ImageError, match=signature(body)):
        decoded(body[: int(len(body) * share)])


def test_damaged_pixels_of_a_png_are_noticed() -> None:
    body = bytearray(samples()["PNG"])
    body[len(body) // 2] ^= 1
    with pytest.raises(ImageError, match="checksum"):
        decoded(bytes(body))


@pytest.mark.parametrize("body", [b"", b"\xff\xd8", b"GIF", b"%PDF-1.4", b"<svg>", b"\0" * 50, b"RIFF\0\0\0\0WAVE"])
def test_what_begins_with_no_raster_signature_is_no_image(body: bytes) -> None:
    assert signature(body) is None
    with pytest.raises(ImageError):
        header(body, LIMIT)


def test_a_block_of_another_size_is_not_written_over() -> None:
    with pytest.raises(ImageError, match="not to its header's size"):
        decode_into(saved(corners(), "PNG"), memoryview(bytearray(10)))


@pytest.mark.parametrize(
    ("body", "content_type", "is_html"),
    [
        (b"<!doctype html>", "image/jpeg", True),
        (b"\xef\xbb\xbf\n<HTML lang=sv>", "", True),
        (b"sorry", "text/html; charset=utf-8", True),
        (b"sorry", "text/plain", False),
        (b"", "text/html", False),
    ],
)
def test_a_web_page_is_told_from_other_bodies(body: bytes, content_type: str, is_html: bool) -> None:
    assert looks_like_html(body, content_type) is is_html


def test_broken_images_raise_image_errors_and_nothing_else() -> None:
    assert fuzz(rounds=40, seed=7) == []


def _png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    about = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    parts = [chunk(b"IHDR", about), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
