"""Both formats, from what htrflow writes to what is published: valid, with all the text, everything in its place."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree

from actors.uploader import alto, page, validate
from actors.uploader.markup import BadExport, Frame, box_of, parse
from actors.uploader.stamp import Provenance
from actors.uploader.transfer import Documents, prepare
from tests.exports import ALTO_NS, PAGE_NS, Files, Thing, Tree, box, hand_made, letter, rendered, template_folders

BY = Provenance("sha256:abc", "ef0ed37", "1.2.3")
A, P = f"{{{ALTO_NS}}}", f"{{{PAGE_NS}}}"


def published(files: Files) -> tuple[etree._Element, etree._Element, Documents]:
    """The two published documents, (PAGE, ALTO), parsed again, and the whole answer."""
    documents = prepare("0001", files.page, files.alto, files.tree, BY)
    return parse(documents.page), parse(documents.alto), documents


def sources() -> list[Callable[[Tree], Files]]:
    def from_templates(folder: Path) -> Callable[[Tree], Files]:
        return lambda tree: rendered(tree, folder)

    real = [pytest.param(from_templates(f), id=name) for name, f in template_folders().items()]
    return [pytest.param(hand_made, id="by hand"), *real]


every_source = pytest.mark.parametrize("export", sources())


def page_boxes(root: etree._Element) -> dict[str, tuple[int, ...]]:
    boxes = {}
    for element in root.iter(f"{P}TextRegion", f"{P}TextLine", f"{P}Word"):
        points = [tuple(map(int, pair.split(","))) for pair in element.find(f"{P}Coords").get("points").split()]
        found = box_of(points, Frame(10**6, 10**6))
        boxes[element.get("id")] = (found.x, found.y, found.width, found.height)
    return boxes


def alto_boxes(root: etree._Element) -> dict[str, tuple[int, ...]]:
    """By the PAGE's names."""
    boxes = {}
    for element in root.iter(f"{A}TextBlock", f"{A}TextLine", f"{A}String"):
        if identity := element.get("ID"):
            sides = tuple(int(element.get(name)) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
            boxes[re.sub(r"^block_?(?=\d)", "region", identity)] = sides
    return boxes


@every_source
def test_a_region_line_or_word_has_the_same_place_in_both_files(export: Callable[[Tree], Files]) -> None:
    tree = letter()
    page_root, alto_root, _ = published(export(tree))
    wanted = {}
    for i, region in enumerate(tree.regions):
        for j, line in enumerate(region.parts):
            for k, word in enumerate(line.parts):
                wanted[f"region{i}_line{j}_word{k}"] = word
            wanted[f"region{i}_line{j}"] = line
        wanted[f"region{i}"] = region
    frame = Frame(tree.width, tree.height)
    places = {name: box_of(thing.polygon, frame) for name, thing in wanted.items()}
    boxes = {name: (b.x, b.y, b.width, b.height) for name, b in places.items()}
    assert page_boxes(page_root) == boxes
    assert alto_boxes(alto_root) == boxes


@every_source
def test_an_outline_in_the_alto_is_that_of_the_page_file(export: Callable[[Tree], Files]) -> None:
    page_root, alto_root, _ = published(export(letter()))
    outlines = {e.getparent().get("id"): e.get("points") for e in page_root.iter(f"{P}Coords")}
    shapes = {e.getparent().getparent().get("ID"): e.get("POINTS") for e in alto_root.iter(f"{A}Polygon")}
    assert shapes
    for identity, points in shapes.items():
        assert points == outlines[re.sub(r"^block_?(?=\d)", "region", identity)]


@every_source
def test_what_htrflow_writes_comes_out_valid_in_both_formats(export: Callable[[Tree], Files]) -> None:
    for tree in (letter(), Tree(300, 200, ()), Tree(300, 200, (Thing(box(5, 5, 50, 50)),))):
        page_root, alto_root, _ = published(export(tree))
        assert validate.first_error(page_root) is None
        assert validate.first_error(alto_root) is None


@every_source
def test_a_region_without_lines_stays_in_both_files_in_its_order(export: Callable[[Tree], Files]) -> None:
    page_root, alto_root, _ = published(export(letter()))
    blocks = [re.sub(r"^block_", "region", b.get("ID")) for b in alto_root.iter(f"{A}TextBlock")]
    assert blocks == [r.get("id") for r in page_root.iter(f"{P}TextRegion")] == ["region0", "region1", "region2"]


@every_source
def test_every_line_keeps_its_text(export: Callable[[Tree], Files]) -> None:
    page_root, alto_root, documents = published(export(letter()))
    expected = ["Kära mor & <far>", "skri-", "vare", "Åsa"]
    assert list(page.line_texts(page_root)) == expected
    assert list(alto.line_texts(alto_root)) == expected
    assert documents.lines == 4


def test_a_line_read_as_a_whole_gives_its_string_the_lines_box() -> None:
    _, alto_root, _ = published(hand_made(letter()))
    string = next(s for s in alto_root.iter(f"{A}String") if s.get("CONTENT") == "Åsa")
    line = string.getparent()
    for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"):
        assert string.get(name) == line.get(name)


def test_points_outside_the_page_are_clamped_and_too_few_become_a_box() -> None:
    files = hand_made(Tree(200, 100, (Thing([(-3, 5), (100, 5), (100, 150)], parts=(Thing([(250, 90)], "text"),)),)))
    page_root, alto_root, _ = published(files)
    assert validate.first_error(page_root) is None
    assert page_root.find(f".//{P}TextRegion/{P}Coords").get("points") == "0,5 100,5 100,100"
    assert page_boxes(page_root)["region0_line0"] == (199, 90, 1, 1) == alto_boxes(alto_root)["region0_line0"]


@pytest.mark.parametrize("bad", ["nan", "inf", "-Infinity", "", "None", "abc"])
def test_numbers_that_are_not_finite_are_left_out(bad: str) -> None:
    files = hand_made(letter())
    files.page = files.page.replace(b'conf="0.9"', f'conf="{bad}"'.encode())
    files.alto = files.alto.replace(b'PHYSICAL_IMG_NR="0"', f'PHYSICAL_IMG_NR="0" PC="{bad}"'.encode())
    files.alto = files.alto.replace(b'<String CONTENT="vare"', f'<String WC="{bad}" CONTENT="vare"'.encode())
    page_root, alto_root, documents = published(files)
    assert validate.first_error(page_root) is None
    assert validate.first_error(alto_root) is None
    assert b"conf=" not in documents.page
    assert b"PC=" not in documents.alto
    assert b"WC=" not in documents.alto


def test_a_share_just_over_one_is_clamped() -> None:
    files = hand_made(letter())
    files.page = files.page.replace(b'conf="0.9"', b'conf="1.0000001"')
    page_root, _, _ = published(files)
    assert {e.get("conf") for e in page_root.iter(f"{P}TextEquiv")} == {"1"}


def test_characters_that_xml_forbids_are_taken_out_of_the_text() -> None:
    files = hand_made(letter())
    files.page = files.page.replace("Åsa".encode(), b"\x0b\xc3\x85s&#x1;\xef\xbf\xbea")
    files.alto = files.alto.replace("Åsa".encode(), b"\xc3\x85s\x00a&#8;")
    files.tree["text"][-1] = "Ås\x01a\ufffe"
    page_root, alto_root, _ = published(files)
    assert list(page.line_texts(page_root))[-1] == list(alto.line_texts(alto_root))[-1] == "Åsa"


def test_empty_groups_and_references_to_nothing_leave_the_reading_order() -> None:
    files = hand_made(letter())
    files.page = files.page.replace(b'regionRef="region0_line1"', b'regionRef="nowhere"')
    files.alto = files.alto.replace(b'REF="block2_line0"', b'REF="nowhere"').replace(
        b'<OrderedGroup ID="ro">', b'<OrderedGroup ID="ro"><OrderedGroup ID="e"><OrderedGroup ID="f"/></OrderedGroup>'
    )
    page_root, alto_root, documents = published(files)
    assert validate.first_error(page_root) is None
    assert validate.first_error(alto_root) is None
    assert b"nowhere" not in documents.page + documents.alto


def test_ids_that_are_no_xml_names_are_made_ones_and_stay_distinct() -> None:
    files = hand_made(letter())
    files.alto = files.alto.replace(b'ID="_0001"', b'ID="0001:a b"').replace(b'ID="block0_line0"', b'ID="0 l"')
    files.alto = files.alto.replace(b'REF="block0_line0"', b'REF="0"').replace(b'ID="block0_line1"', b'ID="0"')
    _, alto_root, _ = published(files)
    assert validate.first_error(alto_root) is None
    assert alto_root.find(f".//{A}ElementRef").get("REF") == "_0"


def test_an_older_page_schema_is_met_as_well() -> None:
    files = hand_made(letter())
    files.page = files.page.replace(b"2019-07-15", b"2013-07-15")
    files.page = files.page.replace(b"<TextEquiv conf", b'<TextEquiv index="0" conf')
    page_root, _, _ = published(files)
    assert b"index" not in b"".join(etree.tostring(e) for e in page_root.iter("{*}TextEquiv"))
    assert all(e.get("conf") is None for e in page_root.iter("{*}Coords"))


def test_the_alto_is_stamped_after_htrflows_own_processing_and_once() -> None:
    files = hand_made(letter())
    _, once, documents = published(files)
    files.alto = documents.alto
    _, twice, _ = published(files)
    for root in (once, twice):
        processings = root.findall(f"{A}Description/{A}Processing")
        assert [p.get("ID") for p in processings] == ["processing", "htrflow-batch"]
        said = [e.text for e in processings[1].findall(f"{A}processingStepDescription")]
        assert said == ["image=sha256:abc", "htrflow-base=ef0ed37"]
        assert processings[1].findtext(f"{A}processingSoftware/{A}softwareVersion") == "1.2.3"


@pytest.mark.parametrize("wrong", ["page", "alto"])
def test_a_format_without_any_of_the_text_fails_the_page_and_names_the_fix(wrong: str) -> None:
    files = hand_made(letter())
    stripped = re.sub(rb"<String [^>]*/>|<TextEquiv.*?</TextEquiv>", b"", getattr(files, wrong))
    setattr(files, wrong, stripped)
    with pytest.raises(BadExport, match=r"^recognized text not exported.*segment regions before lines") as raised:
        published(files)
    assert raised.value.text_lost


def test_a_format_with_part_of_the_text_is_published_and_the_log_counts_what_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = hand_made(letter())
    files.alto = files.alto.replace("Åsa".encode(), b"")
    with caplog.at_level(logging.WARNING, logger="actors"):
        published(files)
    assert "the ALTO lacks 1 of 4 recognized lines" in caplog.text


def test_a_blank_page_is_published() -> None:
    page_root, alto_root, documents = published(hand_made(Tree(300, 200, ())))
    assert documents.lines == 0
    assert not list(alto.line_texts(alto_root)) + list(page.line_texts(page_root))


def test_what_is_still_not_valid_is_published_with_a_warning_that_names_its_first_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = hand_made(letter())
    files.alto = files.alto.replace(b'CS="false"', b'CS="perhaps"')
    with caplog.at_level(logging.WARNING, logger="actors"):
        published(files)
    assert re.search(r"page 0001: the ALTO is published and is not valid: line \d+: .*perhaps", caplog.text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<alto",
        b"no xml at all",
        b"<html/>",
        b'<!DOCTYPE a [<!ENTITY x "y">]><alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">&x;</alto>',
        f'<alto xmlns="{ALTO_NS}"/>'.encode(),
    ],
)
def test_an_alto_that_is_none_fails_the_page(data: bytes) -> None:
    files = hand_made(letter())
    files.tree["text"] = []
    files.alto = data
    with pytest.raises(BadExport, match="malformed XML"):
        published(files)


def test_no_entity_is_expanded_and_no_file_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t")
    with pytest.raises(BadExport, match="document type"):
        parse(f'<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]><a>&x;</a>'.encode())
