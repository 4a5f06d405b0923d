"""How a manifest of any version and shape becomes pages, and what is refused."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fetcher.imagelist import build_manifest, read_images
from actors.fetcher.labels import language_map
from actors.fetcher.manifest import EmptyCanvas, read_manifest
from actors.fetcher.services import image_service
from actors.fetcher.source import NO_IMAGE, ManifestError, Page, Source
from actors.redact import source_digest

API2 = "http://iiif.io/api/image/2/context.json"
LEVEL1 = "http://iiif.io/api/image/2/level1.json"
BASE = "https://images.example/iiif/1"
SERVICE = {"@context": API2, "@id": BASE, "profile": LEVEL1}
PLAIN = {"type": "Image", "id": "https://images.example/1.jpg"}


def read(
    document: Any, empty_canvas: EmptyCanvas = "refuse", max_pages: int = 0, max_width: int = 2500
) -> Source:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_manifest(body, max_width=max_width, empty_canvas=empty_canvas, max_pages=max_pages)


def manifest3(*bodies: Any, **canvas: Any) -> dict[str, Any]:
    """One canvas that paints these bodies, each by its own annotation."""
    annotations = [{"type": "Annotation", "motivation": "painting", "body": body} for body in bodies]
    page = {"type": "AnnotationPage", "items": annotations}
    fields = {
        "id": "https://h/c/1",
        "type": "Canvas",
        "width": 5000,
        "height": 4000,
        "items": [page],
        **canvas,
    }
    return {"type": "Manifest", "items": [fields]}


def manifest2(resource: Any, **canvas: Any) -> dict[str, Any]:
    annotation = {"@type": "oa:Annotation", "motivation": "sc:painting", "resource": resource}
    fields = {"@id": "https://h/c/1", "@type": "sc:Canvas", "images": [annotation], "width": 5000, **canvas}
    return {"@type": "sc:Manifest", "sequences": [{"@type": "sc:Sequence", "canvases": [fields]}]}


def only(document: Any) -> Page:
    (page,) = read(document).pages
    return page


@pytest.mark.parametrize(
    "services",
    [
        SERVICE,
        [SERVICE],
        [[SERVICE]],
        ["https://auth.example/login", SERVICE],
        [{"@id": "https://h/search", "profile": "http://iiif.io/api/search/1/search"}, SERVICE],
        [{"type": "AuthProbeService2", "id": "https://h/probe", "profile": LEVEL1}, SERVICE],
        [{"@context": "http://iiif.io/api/annex/services/physdim/1/context.json"}, None, 7, SERVICE],
        [{"@id": "https://h/unsaid"}, SERVICE],
        [{**SERVICE, "@id": "urn:not-a-url"}, SERVICE],
        [SERVICE, {**SERVICE, "@id": "https://images.example/iiif/second"}],
        {"@id": "https://h/login", "profile": "http://iiif.io/api/auth/1/login", "service": SERVICE},
        {"id": BASE, "type": "ImageService2"},
        {"@id": BASE, "@type": "ImageService2"},
        {"id": BASE, "@id": "https://h/other", "type": "ImageService3", "profile": "level2"},
        {"id": BASE, "profile": ["https://iiif.io/api/image/2/level2.json", {"maxArea": 9}]},
        {"id": BASE, "profile": "level2"},
        {"id": BASE, "protocol": "http://iiif.io/api/image"},
        {"id": BASE, "@context": ["http://iiif.io/api/image/3/context.json"]},
        {"id": BASE, "conformsTo": "http://iiif.io/api/image/3/level1.json"},
        {**SERVICE, "@id": BASE + "/info.json"},
        {**SERVICE, "@id": BASE + "/"},
    ],
)
def test_the_image_service_is_found_in_every_shape_and_beside_other_services(services: Any) -> None:
    assert only(manifest3({**PLAIN, "service": services})).url == f"{BASE}/full/2500,/0/default.jpg"
    assert only(manifest2({"@id": "https://h/x.jpg", "service": services})).service == BASE


@pytest.mark.parametrize(
    "services",
    [
        None,
        [],
        {},
        "https://images.example/iiif/1",
        [{"@id": BASE}],
        {**SERVICE, "@id": 7},
        {"type": "Text"},
        3.5,
    ],
)
def test_without_an_image_service_the_body_is_asked_for_as_it_is(services: Any) -> None:
    page = only(manifest3({**PLAIN, "service": services}))
    assert (page.url, page.service) == ("https://images.example/1.jpg", None)
    assert page.digest == source_digest(page.url)


@pytest.mark.parametrize(
    ("service", "api", "level0"),
    [
        ({"type": "ImageService1"}, 1, False),
        ({"profile": "http://library.stanford.edu/iiif/image-api/1.1/compliance.html#level0"}, 1, True),
        ({"@context": "http://library.stanford.edu/iiif/image-api/1.1/context.json"}, 1, False),
        ({"@context": API2, "profile": "http://iiif.io/api/image/1/level2.json"}, 2, False),
        ({"@type": "iiif:ImageService2", "profile": "level0"}, 2, True),
        ({"type": "ImageService3", "@context": API2, "profile": ["level0", {}]}, 3, True),
    ],
)
def test_the_type_then_the_context_then_the_profile_say_which_image_api(
    service: dict[str, Any], api: int, level0: bool
) -> None:
    found = image_service({"@id": BASE, **service})
    assert found is not None
    assert (found.api, found.level0) == (api, level0)


@pytest.mark.parametrize(
    "base",
    [
        "http://h/iipsrv.fcgi?iiif=/2.tif",
        "http://h/iiif/a%2Fb%252Fc%3Ad",
        "http://h/Add MS 7475_0001.jp2",
        "http://h/Châteauroux/arkis!1",
        "https://user:pass@h/iiif/1?token=x",
        "HTTPS://H/../a//b",
        "http://h/base64==;1",
    ],
)
def test_parameters_are_appended_to_the_service_id_byte_for_byte(base: str) -> None:
    page = only(manifest3({**PLAIN, "service": [{**SERVICE, "@id": base}]}))
    assert page.url == base + "/full/2500,/0/default.jpg"


@pytest.mark.parametrize(
    ("width", "size"),
    [
        (2500, "max"), (2501, "2500,"), (2499.5, "max"), (2500.5, "2500,"), ("1886", "max"),
        ("62651", "2500,"), (" 1886.0 ", "max"), (2, "max"), (1, "2500,"), (0, "2500,"),
        ("0", "2500,"), ("1", "2500,"), (-5, "2500,"), (None, "2500,"), (True, "2500,"), ("wide", "2500,"),
        ("1e3", "2500,"), ("", "2500,"), ([1000], "2500,"), ({}, "2500,"),
        (1e300, "2500,"), (10**30, "2500,"), ("١٢", "2500,"),
    ],
)  # fmt: skip
def test_the_whole_image_is_asked_for_only_where_the_canvas_is_known_to_be_no_wider(
    width: Any, size: str
) -> None:
    page = only(manifest3({**PLAIN, "service": SERVICE}, width=width))
    assert page.url == f"{BASE}/full/{size}/0/default.jpg"


def test_a_canvas_without_a_width_is_not_known_to_be_narrow() -> None:
    document = manifest3({**PLAIN, "width": 10, "service": SERVICE})
    del document["items"][0]["width"]
    assert only(document).url == f"{BASE}/full/2500,/0/default.jpg"


IMAGE = {"type": "Image", "id": "https://h/right.jpg"}
OTHER = {"type": "Image", "id": "https://h/wrong.jpg"}
SOUND = {"type": "Sound", "id": "https://h/a.mp3"}


@pytest.mark.parametrize(
    "body",
    [
        IMAGE,
        [IMAGE, OTHER],
        [SOUND, IMAGE],
        "https://h/right.jpg",
        {"type": "Choice", "items": [IMAGE, OTHER]},
        {"type": "Choice", "items": [SOUND, IMAGE, OTHER]},
        {"type": ["oa:Choice"], "item": [OTHER], "default": IMAGE},
        {"@type": "oa:Choice", "item": IMAGE, "default": "rdf:nil"},
        {"items": [IMAGE]},
        {"type": "SpecificResource", "source": IMAGE, "selector": {"region": "0,0,1,1"}},
        {"type": "SpecificResource", "source": "https://h/right.jpg"},
        {"@type": "oa:SpecificResource", "full": IMAGE},
        {"type": "SpecificResource", "source": {"type": "Choice", "items": [[IMAGE], OTHER]}},
        {"@type": "dctypes:Image", "@id": "https://h/right.jpg"},
        {"@type": "dcterms:StillImage", "@id": "https://h/right.jpg"},
        {"id": "https://h/right.jpg"},
        {"id": "https://h/right.jpg", "format": "image/jpeg"},
        {"id": "https://h/right.jpg", "type": "Unheard", "format": "image/jp2"},
    ],
)
def test_the_image_a_canvas_paints_is_found_in_every_shape_of_body(body: Any) -> None:
    assert only(manifest3(body)).url == "https://h/right.jpg"
    assert only(manifest2(body)).url == "https://h/right.jpg"
    assert only(manifest3(SOUND, body, OTHER)).url == "https://h/right.jpg"


def test_a_body_with_a_service_and_no_id_is_an_image() -> None:
    page = only(manifest3({"type": "Image", "service": SERVICE}))
    assert page.body == {"id": f"{BASE}/full/max/0/default.jpg", "type": "Image", "service": [
        {**SERVICE, "@type": "ImageService2"}
    ]}  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        {"type": "AnnotationPage", "items": {"type": "Annotation", "body": IMAGE}},
        {"type": "Annotation", "motivation": ["painting"], "body": IMAGE},
        [{"items": [{"motivation": "supplementing", "body": OTHER}, {"motivation": "", "body": IMAGE}]}],
        [None, 4, "https://h/page", {"items": [None, "https://h/anno"]}, {"items": [{"body": IMAGE}]}],
        [{"items": [{"motivation": "sc:Painting", "resource": IMAGE}]}],
    ],
)
def test_painting_annotations_are_found_in_every_shape_of_canvas(items: Any) -> None:
    document = {"type": "Manifest", "items": [{"type": "Canvas", "items": items}]}
    assert only(document).url == "https://h/right.jpg"


@pytest.mark.parametrize(
    "document",
    [
        {"@type": "sc:Manifest", "sequences": {"canvases": {"images": {"resource": IMAGE}}}},
        {"@type": ["sc:Manifest"], "sequences": [{"items": [{"content": [{"items": [{"body": IMAGE}]}]}]}]},
        {"sequences": [{"canvases": [{"images": [{"resource": IMAGE}]}]}]},
        {"items": [{"items": [{"items": [{"body": IMAGE}]}]}]},
        {"@context": "http://iiif.io/api/presentation/4/context.json", **manifest3(IMAGE)},
        {"@context": API2, **manifest2(IMAGE)},
        {"@context": [None, {"x": 1}], **manifest3(IMAGE), "sequences": []},
    ],
)
def test_a_manifest_is_judged_by_type_and_shape_and_not_by_its_context(document: Any) -> None:
    assert only(document).url == "https://h/right.jpg"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "this is not a Manifest: it has no type"),
        ({"type": "Collection", "items": []}, "this is a Collection with 0 manifests"),
        (
            {"@type": "sc:Collection", "manifests": [{}, {}], "members": [{"@type": "sc:Manifest"}]},
            "with 3 man",
        ),
        ({"manifests": [{}]}, "this is a Collection with 1 manifests"),
        ({"type": "AnnotationPage", "items": [1]}, "not a Manifest: its type is AnnotationPage"),
        ({"type": "Manifest"}, "no sequences and no items"),
        ({"type": "Manifest", "items": []}, "no sequences and no items"),
        ({"@type": "sc:Manifest", "sequences": []}, "no sequences and no items"),
        ({"@type": "sc:Manifest", "sequences": [{"@id": "https://h/s"}]}, "first sequence has no canvases"),
        ([], "top level is a list"),
        (None, "top level is a null"),
        (7, "top level is a number"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"\xef\xbb\xbf", "not JSON"),
        (b" <!DOCTYPE html>", "not JSON, it looks like an HTML page"),
        (b'{"type": "Manifest", "items": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"type":"Manifest","label":"\xe5"}', "not JSON"),
    ],
)
def test_what_is_no_manifest_with_canvases_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        read(document)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_every_unicode_encoding_is_read_with_and_without_a_byte_order_mark(encoding: str) -> None:
    document = {**manifest3(IMAGE), "label": {"sv": ["Häfte å"]}}
    assert read(json.dumps(document, ensure_ascii=False).encode(encoding)).label == {"sv": ["Häfte å"]}


@pytest.mark.parametrize(
    "url", ["asdf", "ftp://h/1.jpg", "//h/1.jpg", "http://", "http:///1.jpg", "http://h/a\nb"]
)
def test_an_image_url_that_is_not_http_is_refused_whatever_empty_canvases_get(url: str) -> None:
    document = manifest3({"type": "Image", "id": url}, label="f. 1r")
    for empty_canvas in ("refuse", "record"):
        with pytest.raises(
            ManifestError, match=r'^canvas 1 "f. 1r" <https://h/c/1> has an image URL that is not'
        ):
            read(document, empty_canvas)


def test_an_empty_canvas_is_refused_by_number_id_and_label_without_secrets() -> None:
    document = manifest3(IMAGE)
    document["items"].append(
        {"id": "https://u:p@h/c/2?token=t", "type": "Canvas", "label": {"en": ["p.\n2"]}}
    )
    document["items"].append(None)
    with pytest.raises(ManifestError) as caught:
        read(document)
    assert str(caught.value) == (
        'canvas 2 "p. 2" <https://h/c/2> has no image (one of 2 such canvases); with EMPTY_CANVAS=record '
        "such a canvas keeps its page number, is recorded as failed, and the others are transcribed"
    )
    source = read(document, "record")
    assert [page.error for page in source.pages] == [None, NO_IMAGE, NO_IMAGE]
    assert source.pages[1].label == {"en": ["p.\n2"]}


def test_canvases_beyond_the_first_max_pages_are_counted_and_not_judged() -> None:
    document = manifest3(IMAGE)
    document["items"].append({"type": "Canvas"})
    source = read(document, max_pages=1)
    assert (source.total, len(source.pages)) == (2, 1)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("Brev", {"none": ["Brev"]}),
        (None, {}),
        ("", {"none": [""]}),
        (12, {"none": ["12"]}),
        (True, {}),
        ({"@value": "Brev", "@language": "sv"}, {"sv": ["Brev"]}),
        ({"@value": "Brev"}, {"none": ["Brev"]}),
        ({"@value": ["a", "b"], "@language": None}, {"none": ["a", "b"]}),
        (["a", {"@value": "b", "@language": "en"}, "c"], {"none": ["a", "c"], "en": ["b"]}),
        (
            {"sv": ["Häfte"], "en": "Booklet", "@none": ["x"], "de": None},
            {"sv": ["Häfte"], "en": ["Booklet"], "none": ["x"]},
        ),
        ({"sv": [{"@value": "a"}, None, ["b"], 3.5]}, {"sv": ["a", "3.5"]}),
        ([[], {}, None], {}),
    ],
)
def test_labels_of_every_form_become_language_maps(label: Any, expected: Any) -> None:
    assert language_map(label) == expected


def test_services_nested_too_deeply_to_be_written_again_are_left_out_of_the_published_body() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"service": deep}
    page = only(manifest3({**PLAIN, "service": [SERVICE, deep]}))
    assert page.body["service"] == [{**SERVICE, "@type": "ImageService2"}]


@pytest.mark.parametrize(
    "shape", ['{"items":[', '{"type":"Choice","items":[', '{"source":', '{"service":', "["]
)
def test_deep_nesting_is_read_or_refused(shape: str) -> None:
    for depth in (100, 500, 1000, 5000):
        deep = (
            (shape * depth)
            + "1"
            + "".join({"{": "}", "[": "]"}[c] for c in reversed(shape) if c in "{[") * depth
        )
        for place in ("body", "label", "service"):
            body = (
                f'{{"type":"Image","id":"http://h/1","service":{deep},"label":{deep}}}'
                if place != "body"
                else deep
            )
            document = '{"type":"Manifest","items":[{"items":[{"items":[{"body":' + body + "}]}]}]}"
            with contextlib.suppress(ManifestError):
                read(document.encode(), "record").to_json()


KEYS = [
    "id", "@id", "type", "@type", "items", "sequences", "canvases", "images", "resource", "body", "service",
    "source", "full", "default", "item", "label", "width", "height", "profile", "@context", "motivation",
    "format", "content", "@value", "@language",
]  # fmt: skip
NAMES = ["Manifest", "sc:Manifest", "Canvas", "Choice", "SpecificResource", BASE, API2]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            KEYS
        ),
        inner | st.sampled_from(NAMES),
        max_size=6,
    ),
    max_leaves=40,
)  # fmt: skip


@given(ANYTHING)
def test_no_json_value_whatever_raises_anything_but_the_one_error(value: Any) -> None:
    for empty_canvas in ("refuse", "record"):
        try:
            source = read(value, empty_canvas)
        except ManifestError:
            continue
        assert Source.from_json(source.to_json()).pages == source.pages


@given(st.binary())
def test_no_bytes_whatever_raise_anything_but_the_one_error(body: bytes) -> None:
    with pytest.raises(ManifestError):
        read(body)


def test_three_thousand_canvases_take_little_memory() -> None:
    document = manifest3(
        {**PLAIN, "width": 5000, "height": 4000, "format": "image/jpeg", "service": [SERVICE]}
    )
    document["items"] = [{**document["items"][0], "label": {"sv": [f"Sida {n}"]}} for n in range(3000)]
    body = json.dumps(document).encode()
    tracemalloc.start()
    try:
        source = read(body)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(source.pages) == 3000
    assert peak_bytes < 50 * 2**20


def test_an_image_list_gives_pages_and_a_manifest_that_gives_the_same_pages() -> None:
    urls = ["https://u:p@h/a b.jpg?token=t&w=1", "http://h/2.jpg"]
    source = read_images(urls, volume="vol-1", max_pages=0)
    built = build_manifest(urls, volume="vol-1")
    again = read(built)
    assert [page.url for page in source.pages] == urls
    assert [page.url for page in again.pages] == ["https://h/a b.jpg?w=1", "http://h/2.jpg"]
    for ours, theirs in zip(source.pages, again.pages, strict=True):
        assert (ours.canvas_id, ours.label, ours.digest) == (theirs.canvas_id, theirs.label, theirs.digest)
    assert source.pages[1].label == {"none": ["0002"]}
    assert (source.source, source.label, again.label) == (None, {"none": ["vol-1"]}, {"none": ["vol-1"]})
    assert Source.from_json(source.to_json()) == source


def test_an_image_list_honours_max_pages_and_names_a_url_that_is_none() -> None:
    source = read_images(["http://h/1", "http://h/2"], volume="v", max_pages=1)
    assert (source.total, len(source.pages)) == (2, 1)
    with pytest.raises(ManifestError, match=r"^image 2 of the list is not an http\(s\) URL: s3://h/2"):
        read_images(["http://h/1", "s3://h/2?token=t"], volume="v", max_pages=1)
    with pytest.raises(ManifestError, match="empty"):
        read_images([], volume="v", max_pages=0)


def test_the_file_holds_exactly_the_agreed_fields() -> None:
    written = json.loads(read(manifest3(IMAGE)).to_json())
    assert list(written) == ["source", "label", "total", "pages"]
    assert list(written["pages"][0]) == [
        "url", "service", "api", "level0", "canvas_id", "label", "width", "height", "body", "digest", "error",
    ]  # fmt: skip
