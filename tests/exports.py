"""Exports as htrflow writes them, faults included, made from one tree of absolute places.

`hand_made` has the shape of htrflow main's files; `rendered` runs the real templates of an installed htrflow or of a
checkout (HTRFLOW_SRC) over stand-ins for its objects, so that htrflow itself is not imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

Points = list[tuple[int, int]]

ALTO_NS = "http://www.loc.gov/standards/alto/ns-v4#"
PAGE_NS = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
CREATED = "2026-01-02T03:04:05"


@dataclass(frozen=True, slots=True)
class Thing:
    """A region, line or word. `polygon` is absolute."""

    polygon: Points
    text: str = ""
    parts: tuple[Thing, ...] = ()
    confidence: float = 0.9


@dataclass(frozen=True, slots=True)
class Tree:
    width: int
    height: int
    regions: tuple[Thing, ...]

    @property
    def sidecar(self) -> dict[str, Any]:
        """What the gpu actor writes beside the two files."""
        lines = [line for region in self.regions for line in region.parts]
        text = [line.text or " ".join(word.text for word in line.parts) for line in lines]
        return {"width": self.width, "height": self.height, "segmented": True, "blank": not text, "text": text}


def box(x: int, y: int, width: int, height: int) -> Points:
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def slanted(x: int, y: int, width: int, height: int) -> Points:
    """Five points with a box of `width` x `height`."""
    return [(x, y + 3), (x + width // 2, y), (x + width, y + 2), (x + width - 4, y + height), (x, y + height - 1)]


def letter() -> Tree:
    """A page with words in one region, whole lines in a second, and a third (a stamp) without lines."""
    words = (Thing(box(60, 75, 40, 20), "Kära"), Thing(box(110, 76, 50, 22), "mor & <far>"))
    first = Thing(
        slanted(50, 60, 300, 200),
        parts=(
            Thing(slanted(55, 70, 250, 40), parts=words),
            Thing(box(55, 120, 240, 40), parts=(Thing(box(58, 122, 90, 30), "skri-"),)),
        ),
    )
    second = Thing(
        box(60, 300, 300, 150), parts=(Thing(slanted(62, 305, 280, 30), "vare"), Thing(box(62, 350, 280, 30), "Åsa"))
    )
    stamp = Thing(slanted(400, 20, 60, 60))
    return Tree(500, 600, (first, stamp, second))


@dataclass(slots=True)
class Files:
    page: bytes
    alto: bytes
    tree: dict[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------------ by hand, main's shape


def hand_made(tree: Tree) -> Files:
    """Main's files: words in the ALTO lack their region's offset, a region's outline has it twice, an empty region
    has no block."""
    return Files(_page(tree), _alto(tree), tree.sidecar)


def _page(tree: Tree) -> bytes:
    groups, regions = "", ""
    for i, region in enumerate(tree.regions):
        lines = ""
        for j, line in enumerate(region.parts):
            words = "".join(
                f'<Word id="region{i}_line{j}_word{k}"><Coords points="{_points(word.polygon)}"/>{_equiv(word)}</Word>'
                for k, word in enumerate(line.parts)
            )
            lines += (
                f'<TextLine id="region{i}_line{j}"><Coords points="{_points(line.polygon)}"/>'
                f"{words or _equiv(line)}</TextLine>"
            )
        references = "".join(
            f'<RegionRefIndexed regionRef="region{i}_line{j}" index="{j}"/>' for j in range(len(region.parts))
        )
        groups += f'<OrderedGroupIndexed id="ro_region{i}" index="{i}">{references}</OrderedGroupIndexed>'
        regions += (
            f'<TextRegion id="region{i}"><Coords points="{_points(region.polygon)}" conf="{region.confidence}"/>'
            f"{lines}</TextRegion>"
        )
    order = f'<ReadingOrder><OrderedGroup id="ro">{groups}</OrderedGroup></ReadingOrder>' if groups else ""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><PcGts xmlns="{PAGE_NS}"><Metadata><Creator>htrflow</Creator>'
        f"<Created>{CREATED}</Created><LastChange>{CREATED}</LastChange></Metadata>"
        f'<Page imageFilename="0001" imageWidth="{tree.width}" imageHeight="{tree.height}">{order}'
        f"{regions}</Page></PcGts>"
    ).encode()


def _equiv(thing: Thing) -> str:
    text = quoteattr(thing.text, {'"': "&quot;"})[1:-1]
    return f'<TextEquiv conf="{thing.confidence}"><Unicode>{text}</Unicode></TextEquiv>'


def _alto(tree: Tree) -> bytes:
    groups, blocks = "", ""
    for i, region in enumerate(tree.regions):
        if not region.parts:
            continue
        lines = ""
        for j, line in enumerate(region.parts):
            strings = "".join(
                f'<String ID="block{i}_line{j}_word{k}"{_box(_moved(word.polygon, region.polygon))} '
                f"CONTENT={quoteattr(word.text)}/>"
                for k, word in enumerate(line.parts)
            )
            lines += (
                f'<TextLine ID="block{i}_line{j}"{_box(line.polygon)}>{_shape(line.polygon)}'
                f"{strings or f'<String CONTENT={quoteattr(line.text)}/>'}</TextLine>"
            )
        twice = [(x + region.polygon[0][0], y + region.polygon[0][1]) for x, y in region.polygon]
        references = "".join(
            f'<ElementRef ID="ro_block{i}_line{j}" REF="block{i}_line{j}"/>' for j in range(len(region.parts))
        )
        groups += f'<OrderedGroup ID="ro_block{i}">{references}</OrderedGroup>'
        blocks += f'<TextBlock ID="block_{i}"{_box(region.polygon)} CS="false">{_shape(twice)}{lines}</TextBlock>'
    order = f'<ReadingOrder><OrderedGroup ID="ro">{groups}</OrderedGroup></ReadingOrder>' if tree.regions else ""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><alto xmlns="{ALTO_NS}"><Description><MeasurementUnit>pixel'
        f'</MeasurementUnit><Processing ID="processing"><processingDateTime>{CREATED}</processingDateTime></Processing>'
        f'</Description>{order}<Layout><Page WIDTH="{tree.width}" HEIGHT="{tree.height}" PHYSICAL_IMG_NR="0" '
        f'ID="_0001"><PrintSpace>{blocks}</PrintSpace></Page></Layout></alto>'
    ).encode()


def _points(points: Points) -> str:
    return " ".join(f"{x},{y}" for x, y in points)


def _shape(points: Points) -> str:
    return f'<Shape><Polygon POINTS="{_points(points)}"/></Shape>' if len(points) != 4 else ""


def _moved(points: Points, origin: Points) -> Points:
    left, top = min(x for x, _ in origin), min(y for _, y in origin)
    return [(x - left, y - top) for x, y in points]


def _box(points: Points) -> str:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return f' HPOS="{min(xs)}" VPOS="{min(ys)}" WIDTH="{max(xs) - min(xs)}" HEIGHT="{max(ys) - min(ys)}"'


# ------------------------------------------------------------------------------------------------ the real templates


def template_folders() -> dict[str, Path]:
    """The template folders to be had: `installed` (0.2.6) and `checkout` (main, named by HTRFLOW_SRC)."""
    from actors import schemas

    folders = {}
    found = schemas.find()
    if found:
        folders["installed"] = found.alto.parent.parent / "templates"
    if source := os.environ.get("HTRFLOW_SRC"):
        candidates = (Path(source, *parts, "htrflow/serialization/templates") for parts in ((), ("src",)))
        folders["checkout"] = next((c for c in candidates if c.is_dir()), Path(source))
    return {name: folder for name, folder in folders.items() if folder.is_dir()}


def rendered(tree: Tree, folder: Path) -> Files:
    import jinja2

    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(str(folder)), autoescape=True)
    if (folder / "alto-4-4").exists():
        return _rendered_main(tree, environment)
    return _rendered_collection(tree, environment)


class _Bag:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class _Polygon:
    """Main's polygon: points relative to its parent, printed as `x,y x,y`."""

    def __init__(self, points: Points) -> None:
        self.points = points
        xs, ys = [x for x, _ in points], [y for _, y in points]
        self.xmin, self.ymin = min(xs), min(ys)
        self.bbox = _Bag(xmin=min(xs), ymin=min(ys), width=max(xs) - min(xs), height=max(ys) - min(ys))

    def move(self, by: tuple[int, int]) -> _Polygon:
        return _Polygon([(x + by[0], y + by[1]) for x, y in self.points])

    def __str__(self) -> str:
        return _points(self.points)


def _rendered_main(tree: Tree, environment: Any) -> Files:
    def region(thing: Thing, left: int, top: int) -> _Bag:
        polygon = _Polygon([(x - left, y - top) for x, y in thing.polygon])
        return _Bag(
            polygon=polygon,
            regions=[region(part, left + polygon.xmin, top + polygon.ymin) for part in thing.parts],
            annotations={"segmentation_confidence": thing.confidence},
            transcription=[_Bag(text=thing.text, confidence=thing.confidence)] if thing.text else [],
        )

    document = _Bag(
        image_name="0001",
        image=_Bag(width=tree.width, height=tree.height),
        regions=[region(thing, 0, 0) for thing in tree.regions],
    )
    values = {"document": document, "metadata": {"Name": "htrflow"}, "timestamp": CREATED, "steps": []}
    page, alto = (environment.get_template(name).render(values) for name in ("page2019", "alto-4-4"))
    return Files(page.encode(), alto.encode(), tree.sidecar)


class _Node:
    """0.2.6's node: absolute places, labels that both files share."""

    def __init__(self, thing: Thing, label: str, part: str) -> None:
        self.label, self.text = label, thing.text or None
        self.polygon, self.coord = (
            thing.polygon,
            _Bag(x=min(x for x, _ in thing.polygon), y=min(y for _, y in thing.polygon)),
        )
        self.width = max(x for x, _ in thing.polygon) - self.coord.x
        self.height = max(y for _, y in thing.polygon) - self.coord.y
        self.children = [_Node(p, f"{label}_{part}{i}", "word") for i, p in enumerate(thing.parts)]
        if part == "word" and self.children:
            self.text = " ".join(str(child.text) for child in self.children)
        self.text_result = _Bag(top_score=lambda: thing.confidence)

    def __iter__(self) -> Any:
        return iter(self.children)


class _PageNode(_Bag):
    def __iter__(self) -> Any:
        return iter(self.children)


def _rendered_collection(tree: Tree, environment: Any) -> Files:
    nodes = [_Node(thing, f"region{i}", "line") for i, thing in enumerate(tree.regions)]
    page = _PageNode(
        label="_0001",
        width=tree.width,
        height=tree.height,
        children=nodes,
        polygon=box(0, 0, tree.width, tree.height),
        get=lambda name: "0001",
        is_leaf=lambda: not nodes,
        has_regions=lambda: True,
    )
    values = {
        "page": page,
        "page_confidence": 0.9,
        "printspace": [node for node in nodes if node.children],
        "metadata": _Bag(
            created=CREATED, creator="x", software_name="htrflow", software_version="0", application_description="x"
        ),
        "processing_steps": [],
        "xmlescape": lambda text: text,
        "is_text_line": lambda node: node.text is not None,
    }
    alto, page_text = environment.get_template("alto").render(values), environment.get_template("page").render(values)
    return Files(page_text.encode(), alto.encode(), tree.sidecar)
