"""What a body is, how large its picture is, and its upright RGB pixels.

The bytes decide what is an image. Sizes are judged from the header, before any pixel is decoded, by one limit
of our own (Pillow's is switched off). Pixels come out as a viewer shows them: turned by their EXIF
orientation, alpha on white, deep greys scaled.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import simplejpeg
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

Image.MAX_IMAGE_PIXELS = None
ImageFile.LOAD_TRUNCATED_IMAGES = False
warnings.filterwarnings("ignore", module="PIL")
"""Oddities of metadata, told on stderr; what matters raises."""

_SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"), (b"\x89PNG\r\n\x1a\n", "PNG"), (b"GIF87a", "GIF"), (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"), (b"MM\0*", "TIFF"), (b"II+\0", "TIFF"), (b"MM\0+", "TIFF"), (b"BM", "BMP"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JP2"), (b"\xff\x4f\xff\x51", "J2K"),
)  # fmt: skip
_DECODERS = {"JPEG": ("JPEG", "MPO"), "JP2": ("JPEG2000",), "J2K": ("JPEG2000",), "WebP": ("WEBP",)}
_TURNS = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT,),
    3: (Image.Transpose.ROTATE_180,),
    4: (Image.Transpose.FLIP_TOP_BOTTOM,),
    5: (Image.Transpose.TRANSPOSE,),
    6: (Image.Transpose.ROTATE_270,),
    7: (Image.Transpose.TRANSVERSE,),
    8: (Image.Transpose.ROTATE_90,),
}
"""How an EXIF orientation is undone (Exif 2.32, tag 274)."""
_STRIP_BYTES = 2**20
Grey = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


class ImageError(Exception):
    """The body is no image that can be used, in a sentence."""


class TooManyPixels(ImageError):
    """Its header says it is larger than MAX_IMAGE_PIXELS allows."""


@dataclass(frozen=True, slots=True)
class Header:
    """`format` as listed in batchpod/README.md, section 5; `width` and `height` are the upright picture's."""

    format: str
    width: int
    height: int


def signature(body: bytes) -> str | None:
    """The raster format that `body` begins like; None when it is none of those that are taken."""
    start = body[:12]
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WebP"
    return next((name for mark, name in _SIGNATURES if start.startswith(mark)), None)


def looks_like_html(body: bytes, content_type: str) -> bool:
    """Whether a body that is no image is a web page, as servers send one in place of an image that they cannot give."""
    start = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    xhtml = start.startswith(b"<?xml") and b"<html" in start
    marked = xhtml or start.startswith((b"<!doctype html", b"<html"))
    return marked or (bool(start) and "html" in content_type.lower())


def header(body: bytes, max_pixels: int) -> Header:
    """The format and upright size of `body`, from its header alone; `max_pixels` 0 means no limit.

    Raises:
        TooManyPixels: width x height is more than `max_pixels`.
        ImageError: it is no image, or its header is broken.
    """
    name = _named(body)
    try:
        with _opened(body, name) as image:
            width, height = image.size
            if _orientation(image, body) >= 5:
                width, height = height, width
    except Exception as e:  # A decoder fed with broken bytes raises anything.
        raise ImageError(f"a broken {name} header: {_reason(e)}") from e
    if width < 1 or height < 1:
        raise ImageError(f"the {name} header says {width} x {height} pixels")
    if max_pixels and width * height > max_pixels:
        raise TooManyPixels(f"{width} x {height} pixels are more than the {max_pixels} of MAX_IMAGE_PIXELS")
    return Header(name, width, height)


def decode_into(body: bytes, block: memoryview) -> None:
    """Write the upright pixels (height x width x 3, row by row, RGB) into `block`, which has exactly that size.

    Raises:
        ImageError: it does not decode, or is not of the size its block was made for.
    """
    name = _named(body)
    try:
        if name == "PNG":
            _check_png(body)
        with _opened(body, name) as image:
            turn = _orientation(image, body)
            if name == "JPEG" and turn == 1 and image.mode in ("RGB", "L") and _in_place(body, image.size, block):
                return
            image.load()
            pixels = _rgb(image, name)
        for method in _TURNS.get(turn, ()):
            pixels = pixels.transpose(method)
    except Exception as e:  # As above.
        raise ImageError(f"the {name} image does not decode: {_reason(e)}") from e
    if pixels.width * pixels.height * 3 != len(block):
        raise ImageError(
            f"the {name} image decodes to {pixels.width} x {pixels.height} pixels, not to its header's size"
        )
    _copy(pixels, block)


def _named(body: bytes) -> str:
    name = signature(body)
    if name is None:
        raise ImageError("an empty body" if not body else f"not an image: it begins with {body[:12]!r}")
    return name


def _opened(body: bytes, name: str) -> Image.Image:
    return Image.open(io.BytesIO(body), formats=_DECODERS.get(name, (name,)))


def _orientation(image: Image.Image, body: bytes) -> int:
    """The EXIF orientation that is still to be undone, 1 to 8. Pillow undoes a TIFF's itself."""
    if image.format == "TIFF":
        return 1
    exif = image.getexif() if image.format != "PNG" else _png_exif(body)
    value = exif.get(ExifTags.Base.Orientation, 1)
    return value if isinstance(value, int) and value in _TURNS else 1


def _png_exif(body: bytes) -> Image.Exif:
    """A PNG's EXIF wherever it stands; Pillow would decode all pixels to look behind them."""
    exif = Image.Exif()
    for kind, data, _ in _png_chunks(body):
        if kind == b"eXIf":
            exif.load(bytes(data))
            break
    return exif


def _check_png(body: bytes) -> None:
    """Compare every chunk of pixels with its checksum, which Pillow leaves out.

    Raises:
        ValueError: one is damaged.
    """
    for kind, data, checksum in _png_chunks(body):
        if kind == b"IDAT" and zlib.crc32(data, zlib.crc32(kind)) != checksum:
            raise ValueError("a chunk of its pixels has the wrong checksum")


def _png_chunks(body: bytes) -> Iterator[tuple[bytes, memoryview, int]]:
    """Kind, data and checksum of each whole chunk up to the end."""
    view = memoryview(body)
    at = 8
    while at + 12 <= len(view):
        length, kind = struct.unpack_from(">I4s", view, at)
        if at + 12 + length > len(view):
            return
        (checksum,) = struct.unpack_from(">I", view, at + 8 + length)
        yield kind, view[at + 8 : at + 8 + length], checksum
        at += 12 + length


def _rgb(image: Image.Image, name: str) -> Image.Image:
    """The loaded image as RGB: alpha on white, more than 8 bits scaled and not clipped."""
    if image.mode.startswith(("I", "F")):
        grey = _eight_bits(image)
        clear = image.info.get("transparency")
        if isinstance(clear, int):
            grey = np.where(np.asarray(image) == clear, np.uint8(255), grey)
        return Image.fromarray(grey).convert("RGB")
    if image.mode == "CMYK" and name == "JPEG" and "adobe" not in image.info:
        # Pillow turns every CMYK JPEG's values round, as Adobe writes them; without Adobe's marker they are
        # as they are.
        image = Image.eval(image, lambda value: 255 - value)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        if image.mode in ("RGBa", "La"):
            image = image.convert("RGBA" if image.mode == "RGBa" else "LA")
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> Grey:
    """A deep grey image scaled to 0..255.

    Integers are scaled by their depth (16 bits, or what a TIFF says; 32 where a value needs it), floats by 1
    where none is larger and by 255 otherwise.
    """
    values = np.asarray(image)
    tags = getattr(image, "tag_v2", {})
    if image.mode == "F":
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        top = 1.0 if values.size and values.max() <= 1.0 else 255.0
        values = np.clip(values / top, 0.0, 1.0) * 255.0 + 0.5
        return np.asarray(values, np.uint8)
    depth = tags.get(ExifTags.Base.BitsPerSample, (16,))[0]
    signed = tags.get(ExifTags.Base.SampleFormat, (1,))[0] == 2
    most = 2 ** (depth - 1 if signed else depth) - 1 if depth <= 32 else 2**32 - 1
    scaled = (np.clip(values.astype(np.int64), 0, most) * 255 + most // 2) // most
    white_is_zero = tags.get(ExifTags.Base.PhotometricInterpretation, 1) == 0
    return np.asarray(255 - scaled if white_is_zero else scaled, np.uint8)


def _in_place(body: bytes, size: tuple[int, int], block: memoryview) -> bool:
    """Decode a plain JPEG straight into the block: the same pixels as Pillow's, at half the cost and without its memory.

    False where libjpeg has anything to complain about: Pillow then decides whether that is an error.
    """
    width, height = size
    if width * height * 3 != len(block):
        return False
    rows = np.frombuffer(block, np.uint8).reshape(height, width, 3)
    try:
        simplejpeg.decode_jpeg(body, "RGB", buffer=rows, strict=True)
    except ValueError:
        return False
    return True


def _copy(pixels: Image.Image, block: memoryview) -> None:
    """Into the block strip by strip: never a second whole copy beside Pillow's own."""
    rows = max(1, _STRIP_BYTES // (pixels.width * 3))
    for top in range(0, pixels.height, rows):
        strip = pixels.crop((0, top, pixels.width, min(top + rows, pixels.height))).tobytes()
        start = top * pixels.width * 3
        block[start : start + len(strip)] = strip


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):  # Its text names an object's address.
        return "the decoder does not know it"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
