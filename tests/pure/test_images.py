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


def test_the_transparent_value_of_a_16_bit_png_is_white() -> None:
    rows = b"\0" + struct.pack(">HHH", 1000, 0, 0xFFFF)
    assert decoded(_png(3, 1, 16, 0, rows, clear=struct.pack(">H", 1000)))[0, :, 0].tolist() == [255, 0, 255]


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


def palette(*colours: tuple[int, int, int]) -> Image.Image:
    """One pixel of each colour, in a row."""
    image = Image.new("P", (len(colours), 1))
    image.putpalette([value for colour in colours for value in colour])
    image.putdata(range(len(colours)))
    return image


def solid(mode: str, value: Any, size: int = 32) -> Image.Image:
    return Image.new(mode, (size, size), value)


def test_sixteen_bits_with_alpha_lie_on_white() -> None:
    colour = b"\0" + struct.pack(">8H", 65535, 0, 257, 65535, 65535, 0, 0, 0)
    assert near(decoded(_png(2, 1, 16, 6, colour))[0], [(255, 0, 1), WHITE], 1)
    grey = b"\0" + struct.pack(">4H", 32768, 65535, 0, 0)
    assert near(decoded(_png(2, 1, 16, 4, grey))[0], [(128,) * 3, WHITE], 1)


def test_fewer_than_eight_bits_are_spread_over_the_whole_range() -> None:
    assert near(decoded(_png(4, 1, 2, 0, b"\0\x1b"))[0], [BLACK, (85,) * 3, (170,) * 3, WHITE], 0)
    assert near(decoded(_png(8, 1, 1, 0, b"\0\xf0"))[0], [WHITE] * 4 + [BLACK] * 4, 0)


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bit_colour_in_a_tiff_is_scaled(order: str) -> None:
    assert near(decoded(_tiff_rgb16(order, (65535, 32768, 257))), (255, 128, 1), 1)


@pytest.mark.parametrize(
    ("body", "pixel"),
    [
        (saved(solid("CMYK", (255, 0, 0, 0)), "TIFF"), (0, 255, 255)),
        (saved(solid("CMYK", (0, 255, 0, 128)), "JPEG", quality=95), (127, 0, 127)),
        (saved(solid("LAB", (255, 128, 128)), "TIFF"), WHITE),
        (saved(solid("RGBA", (10, 20, 30, 0)), "TIFF"), WHITE),
        (saved(solid("RGBA", (10, 20, 30, 0)), "WEBP", lossless=True), WHITE),
        (saved(solid("RGBA", (10, 20, 30, 0)), "JPEG2000"), WHITE),
        (saved(solid("LA", (10, 0)), "JPEG2000"), WHITE),
        (saved(solid("RGB", (9, 8, 7)), "PNG", transparency=(9, 8, 7)), WHITE),
        (saved(solid("L", 9), "PNG", transparency=9), WHITE),
        (saved(solid("L", 9), "JPEG2000"), (9,) * 3),
        (saved(Image.fromarray(np.full((32, 32), 32768, np.uint16)), "JPEG2000"), (128,) * 3),
        (saved(solid("1", 1), "BMP"), WHITE),
        (saved(solid("L", 60), "BMP"), (60,) * 3),
        (saved(solid("L", 60), "TIFF", compression="tiff_lzw"), (60,) * 3),
        (saved(solid("P", 0), "TIFF"), BLACK),
    ],
)
def test_a_picture_of_one_colour_has_the_value_that_a_viewer_shows(body: bytes, pixel: tuple[int, ...]) -> None:
    assert near(decoded(body), pixel, 2)


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "PNG"])
def test_a_palette_s_colours_are_looked_up(kind: str) -> None:
    assert near(decoded(saved(palette(RED, GREEN, BLUE, GREY), kind))[0], [RED, GREEN, BLUE, GREY], 0)


def test_a_transparent_colour_of_a_gif_lies_on_white() -> None:
    assert near(decoded(saved(palette(RED, BLUE), "GIF", transparency=0))[0], [WHITE, BLUE], 0)


@pytest.mark.parametrize(("kind", "name"), [("PNG", "PNG"), ("MPO", "JPEG")])
def test_of_an_animation_or_a_stereo_pair_the_first_picture_is_taken(kind: str, name: str) -> None:
    body = saved(solid("RGB", RED), kind, save_all=True, append_images=[solid("RGB", BLUE)])
    assert header(body, LIMIT).format == name
    assert near(decoded(body), RED, 3)


def test_a_large_picture_is_copied_whole() -> None:
    rows, columns = np.mgrid[0:700, 0:900]
    expected = np.stack([rows % 256, columns % 256, (rows + columns) % 256], axis=2).astype(np.uint8)
    assert (decoded(saved(Image.fromarray(expected), "PNG")) == expected).all()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", [
    {}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}, {"quality": 10}, {"keep_rgb": True},
    {"restart_marker_rows": 1},
])  # fmt: skip
def test_a_plain_jpeg_has_the_same_pixels_as_pillow_gives(mode: str, options: dict[str, Any]) -> None:
    rows, columns = np.mgrid[0:333, 0:417]
    picture = np.stack([rows * columns % 256, columns % 256, (rows * 7 + columns) % 256], axis=2).astype(np.uint8)
    body = saved(Image.fromarray(picture).convert(mode), "JPEG", **options)
    with Image.open(io.BytesIO(body)) as image:
        assert (decoded(body) == np.asarray(image.convert("RGB"))).all()


@pytest.mark.parametrize("stray", [b"\0", b"\xff", b"\xff\xd8\xff\xe0", b"\r\n"])
def test_a_jpeg_with_stray_bytes_behind_its_end_or_between_its_segments_has_the_pixels_that_pillow_gives(stray: bytes) -> None:
    whole = saved(corners(), "JPEG", quality=95)
    at = whole.index(b"\xff\xdb")
    for body in (whole + stray, whole[:at] + b"\xff" * len(stray) + whole[at:]):
        with Image.open(io.BytesIO(body)) as image:
            assert (decoded(body) == np.asarray(image)).all()


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


def _png(width: int, height: int, depth: int, colour: int, rows: bytes, *, clear: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    about = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    transparent = [chunk(b"tRNS", clear)] if clear else []
    parts = [chunk(b"IHDR", about), *transparent, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _tiff_rgb16(order: str, pixel: tuple[int, int, int]) -> bytes:
    """One uncompressed pixel of three 16-bit samples (TIFF 6.0, section 6); Pillow cannot write these."""
    tags = [(256, 1), (257, 1), (258, 3), (259, 1), (262, 2), (273, 0), (277, 3), (278, 1), (279, 6)]
    depths_at = 8 + 2 + 12 * len(tags) + 4
    out = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(tags))
    for tag, value in tags:
        if tag == 258:
            out += struct.pack(order + "HHII", tag, 3, 3, depths_at)
        else:
            out += struct.pack(order + "HHII", tag, 4, 1, depths_at + 6 if tag == 273 else value)
    return out + struct.pack(order + "I3H3H", 0, 16, 16, 16, *pixel)
