"""The page lists of eighty real manifests, against what is expected of each (expected.json beside them)."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.fetcher.jsonld import parse
from actors.fetcher.manifest import EmptyCanvas, read_manifest
from actors.fetcher.source import NO_IMAGE, ManifestError, Source
from actors.redact import for_log

CAUSES = {
    "not JSON": "not JSON",
    "not a Manifest": "not a Manifest",
    "a Collection": "Collection with 2 manifests",
    "top level is a JSON list": "top level is a list",
    "top level is a JSON str": "top level is a string",
    "sequence is not an object": "first sequence is not an object",
    "empty manifest: first sequence has no canvases": "first sequence has no canvases",
    "empty manifest: no sequences": "no sequences",
}
"""How an expected error without a canvas begins, and what ours must say."""

UNKNOWN_WIDTH = "p2-mirador-zerowidth.json"
"""Expected to be asked for `max`; but a width of zero is not known to be narrow, so a width is asked for."""


def read(body: bytes, empty_canvas: EmptyCanvas = "refuse", max_width: int = 2500) -> Source:
    return read_manifest(body, max_width=max_width, empty_canvas=empty_canvas, max_pages=0)


@pytest.fixture(scope="module")
def manifests(shared_dir: Path) -> Path:
    return shared_dir / "manifests"


@pytest.fixture(scope="module")
def expected(manifests: Path) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = json.loads((manifests / "expected.json").read_bytes())
    assert len(entries) == 80
    return entries


def test_every_manifest_gives_the_pages_that_are_expected_of_it(
    manifests: Path, expected: dict[str, dict[str, Any]]
) -> None:
    wrong = {}
    for name, want in expected.items():
        if "pages" not in want or name == UNKNOWN_WIDTH:
            continue
        other = want.get("alt", {})
        try:
            source = read((manifests / name).read_bytes())
        except ManifestError as error:
            if not (want.get("uncertain") and "error" in other):
                wrong[name] = str(error)
            continue
        got = (source.total, source.pages[0].url, source.pages[-1].url)
        firsts, lasts = [want["first"], *other.get("first", [])], [want["last"], *other.get("last", [])]
        if got[0] != want["pages"] or got[1] not in firsts or got[2] not in lasts:
            wrong[name] = str(got)
    assert wrong == {}


def test_only_an_image_url_that_cannot_be_asked_is_refused_where_refusing_is_allowed(
    manifests: Path, expected: dict[str, dict[str, Any]]
) -> None:
    refused = []
    for name, want in expected.items():
        if "pages" in want:
            try:
                read((manifests / name).read_bytes())
            except ManifestError:
                refused.append(name)
    assert refused == ["p2-apierr-42.json"]


def test_a_manifest_without_pages_is_refused_for_the_expected_cause(
    manifests: Path, expected: dict[str, dict[str, Any]]
) -> None:
    for name, want in expected.items():
        if "error" not in want:
            continue
        with pytest.raises(ManifestError) as caught:
            read((manifests / name).read_bytes())
        message = str(caught.value)
        if "canvas" in want:
            assert message.startswith(f"canvas {want['canvas_number']}"), name
            assert f"<{for_log(want['canvas'])}> has no image" in message, name
        else:
            cause = next(ours for theirs, ours in CAUSES.items() if want["error"].startswith(theirs))
            assert cause in message, name


def test_canvases_without_an_image_are_recorded_under_their_own_numbers(
    manifests: Path, expected: dict[str, dict[str, Any]]
) -> None:
    for name, want in expected.items():
        if "bad_canvases" in want:
            source = read((manifests / name).read_bytes(), "record")
            bad = [number for number, page in enumerate(source.pages, 1) if page.error == NO_IMAGE]
            assert (len(bad), bad[0]) == (want["bad_canvases"], want["canvas_number"]), name
            assert source.pages[bad[0] - 1].canvas_id == want["canvas"]
            assert all(bool(page.url) == (page.error is None) for page in source.pages)
            assert any(f"{len(bad)} canvas" in note for note in source.notes)


def test_what_a_refused_canvas_paints_and_how_many_are_like_it_is_said(manifests: Path) -> None:
    with pytest.raises(ManifestError, match=r"it paints: Video, untyped text/vtt"):
        read((manifests / "p3-mirador-video-vtt-bodies.json").read_bytes())
    with pytest.raises(ManifestError, match=r'^canvas 3 ".+" <.+> has no image \(one of 84 such canvases\);'):
        read((manifests / "p2-mirador-emptycanvas-322.json").read_bytes())


def test_what_a_page_list_leaves_out_is_noted(manifests: Path) -> None:
    (note,) = read((manifests / "p2-meme-fragment-first.json").read_bytes()).notes
    assert note == "more than one image is painted, and only the first is taken, on 1 canvas: 1"
    sequences, images = read((manifests / "p2-ecodices-gau-2seq.json").read_bytes()).notes
    assert "2 sequences: the first is read (13 canvases), left out:" in sequences
    assert sequences.endswith("(16 canvases)")
    assert "only the first is taken" in images


def test_image_api_1_services_are_asked_for_native(
    manifests: Path,
) -> None:
    pages = read((manifests / "p2-bodleian-149.json").read_bytes()).pages
    assert pages[-1].url == "http://gallica.bnf.fr/iiif/ark:/12148/btv1b8419223t/f54/full/2500,/0/native.jpg"
    assert {page.url.rsplit("/", 1)[1] for page in pages if page.api == 1} == {"native.jpg"}
    (page,) = read((manifests / UNKNOWN_WIDTH).read_bytes()).pages
    assert (page.width, page.url.rsplit("/", 3)[1]) == (None, "2500,")


def test_every_page_list_comes_back_from_its_file_unchanged(
    manifests: Path, expected: dict[str, dict[str, Any]]
) -> None:
    for name, want in expected.items():
        if "pages" in want and name != "p2-apierr-42.json":
            source = read_manifest(
                (manifests / name).read_bytes(),
                max_width=2500,
                empty_canvas="refuse",
                max_pages=0,
                url="http://u:p@h/m?token=t",
            )
            again = Source.from_json(source.to_json())
            assert (again.source, again.label, again.total, again.pages) == (
                "http://u:p@h/m?token=t",
                source.label,
                source.total,
                source.pages,
            )


def test_published_bodies_are_presentation_3_and_old_services_keep_their_keys(manifests: Path) -> None:
    page = read((manifests / "p2-stanford-2.json").read_bytes()).pages[0]
    (service,) = page.body["service"]
    assert page.body["type"] == "Image"
    assert page.body["id"].startswith("http://stacks.stanford.edu/")
    assert not {"@id", "@type"} & set(page.body)
    assert (service["@id"], service["@type"]) == (page.service, "ImageService1")
    assert "profile" in service
    services = read((manifests / "p3-riksarkivet-40008772.json").read_bytes()).pages[0].body["service"]
    assert len(services) == 2


@pytest.fixture(scope="module")
def small_documents(manifests: Path) -> list[Any]:
    """The manifests of up to 6 kB that are JSON."""
    small = [path for path in sorted(manifests.glob("p*.json")) if path.stat().st_size < 6_000]
    return [parse(path.read_bytes()) for path in small]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)


@settings(max_examples=100)
@given(
    st.integers(0, 2**32),
    st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
)
def test_real_manifests_with_subtrees_exchanged_are_read_or_refused(
    small_documents: list[Any], seed: int, stranger: Any
) -> None:
    chance = random.Random(seed)
    document = deepcopy(chance.choice(small_documents))
    for _ in range(chance.randint(1, 4)):
        replace_somewhere(document, chance, stranger)
    for empty_canvas in ("refuse", "record"):
        try:
            source = read(json.dumps(document).encode(), empty_canvas)
        except ManifestError:
            continue
        assert Source.from_json(source.to_json()).pages == source.pages


def replace_somewhere(document: Any, chance: random.Random, stranger: Any) -> None:
    """Puts the stranger, or another part of the document, in the place of one of its parts."""
    places = list(places_in(document))
    if not places:
        return
    holder, key = chance.choice(places)
    other_holder, other_key = chance.choice(places)
    holder[key] = deepcopy(stranger if chance.random() < 0.6 else other_holder[other_key])


def places_in(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = (
            holder.keys()
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found
