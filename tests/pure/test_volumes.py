"""The lines of volumes.txt."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpod.settings.volumes import Volume, VolumeError, parse, read_volume


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    path = tmp_path / "volumes.txt"
    path.write_bytes(
        b"A\thttps://h/a.json\r\n"
        b"B\timages:http://h/1.jpg http://h/2.jpg\r\n"
        b"no tab here\r\n"
        b"\r\n"
        b"\xff\xfe\thttps://h/x\r\n"
        b"C\thttps://h/\xc3\xa5.json\n"
        b"\n\r\n  \n"
    )
    return path


def test_lines_are_counted_from_0_and_crlf_is_tolerated(volumes: Path) -> None:
    assert read_volume(str(volumes), 0) == Volume("A", "https://h/a.json", ())
    assert read_volume(str(volumes), 1) == Volume("B", None, ("http://h/1.jpg", "http://h/2.jpg"))
    assert read_volume(str(volumes), 5) == Volume("C", "https://h/å.json", ())


@pytest.mark.parametrize("index", [6, 7, 8, 9, 10**9])
def test_blank_lines_at_the_end_are_no_volumes(volumes: Path, index: int) -> None:
    with pytest.raises(VolumeError, match=rf"^no volume for index {index}$"):
        read_volume(str(volumes), index)


@pytest.mark.parametrize(("index", "said"), [(2, "has no TAB"), (3, "has no TAB"), (4, "is not UTF-8")])
def test_a_bad_line_is_named_by_its_number(volumes: Path, index: int, said: str) -> None:
    with pytest.raises(VolumeError, match=rf"^index {index}: line {index + 1} {said}"):
        read_volume(str(volumes), index)


def test_a_file_that_cannot_be_read_is_named_with_the_index(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match=r"^index 3: .*none.txt cannot be read: No such file"):
        read_volume(str(tmp_path / "none.txt"), 3)
    with pytest.raises(VolumeError, match="cannot be read"):
        read_volume(str(tmp_path), 0)


def test_a_byte_order_mark_is_no_part_of_the_first_id(tmp_path: Path) -> None:
    path = tmp_path / "volumes.txt"
    path.write_bytes(b"\xef\xbb\xbfA\thttps://h/a.json")
    assert read_volume(str(path), 0).ref == "A"


def test_a_line_longer_than_an_environment_can_hold_is_read(tmp_path: Path) -> None:
    urls = tuple(f"https://images.example/{n:06d}.jpg" for n in range(20_000))
    path = tmp_path / "volumes.txt"
    path.write_text(f"X\thttps://h/x\nBIG\timages:{' '.join(urls)}\n")
    assert read_volume(str(path), 1).images == urls


@pytest.mark.parametrize(
    "line",
    [
        "\thttps://h/a",
        "a/b\thttps://h/a",
        "a..b\thttps://h/a",
        "A\t",
        "A\tftp://h/a",
        "A\timages:",
        "A\timages: ",
        "A\timages:x",
    ],
)
def test_a_bad_id_or_source_is_refused(line: str) -> None:
    with pytest.raises(VolumeError, match=r"^index 4: line 5: "):
        parse(line, 4)


@given(st.text())
def test_any_line_is_a_volume_or_refused(line: str) -> None:
    try:
        volume = parse(line, 0)
    except VolumeError:
        return
    assert bool(volume.manifest_url) != bool(volume.images)
