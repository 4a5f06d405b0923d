"""What a run left in the bucket, as a table for people: outcomes, seconds, CER against the ground truth."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import orjson

from tools.demo.cer import cer

PAGE_LINE = ".//{*}TextLine"


def lines_of(page_xml: bytes) -> list[str]:
    """The text lines of a PAGE file in the order in which they stand: each line's own text, or its words joined."""
    root = ElementTree.fromstring(page_xml)
    lines = []
    for line in root.iterfind(PAGE_LINE):
        own = [u.text or "" for u in line.iterfind("{*}TextEquiv/{*}Unicode")]
        words = [u.text or "" for u in line.iterfind("{*}Word/{*}TextEquiv/{*}Unicode")]
        lines.append(own[0] if own else " ".join(words))
    return lines


def truth_of(entry: dict[str, Any]) -> str:
    return "\n".join(line["text"] for region in entry["regions"] for line in region["lines"])


def page_cers(s3: Any, bucket: str, prefix: str, truth: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Character error rate and length of the ground truth of every page that has text, by page name.

    `truth` is in page order: its n-th entry is page n.
    """
    rates = {}
    for number, entry in enumerate(truth.values(), start=1):
        reference = truth_of(entry)
        if reference:
            name = f"{number:04d}"
            body = s3.get_object(Bucket=bucket, Key=f"{prefix}/page/{name}.xml")["Body"].read()
            rates[name] = cer(reference, "\n".join(lines_of(body))), len(reference)
    return rates


def overall(rates: dict[str, tuple[float, int]]) -> float:
    """The error rate over all text: each page weighs as much as it has characters."""
    return sum(rate * length for rate, length in rates.values()) / sum(length for _, length in rates.values())


def table(s3: Any, bucket: str, prefix: str, truth: dict[str, Any], results_url: str) -> str:
    """The whole table, with where everything is and how to look at it."""
    manifest = orjson.loads(s3.get_object(Bucket=bucket, Key=f"{prefix}/manifest.json")["Body"].read())
    rates = page_cers(s3, bucket, prefix, truth)
    rows = [f"{'page':>6}  {'file':10}  {'outcome':8}  {'lines':>5}  {'seconds':>7}  {'CER':>6}"]
    for (name, result), file in zip(sorted(manifest["results"].items()), truth, strict=True):
        rate = f"{100 * rates[name][0]:5.1f}%" if name in rates else ""
        row = f"{name:>6}  {file:10}  {result['status']:8}  {result.get('lines', 0):>5}  {result['seconds']:>7.2f}"
        rows.append(f"{row}  {rate:>6}" + (f"  {result['error']}" if "error" in result else ""))
    rows += [
        "",
        f"{manifest['pages_ok']} of {manifest['pages']} pages ok in {manifest['wall_seconds']:.1f} s "
        f"({manifest['pages_per_second']:.2f} pages/s), character error rate {100 * overall(rates):.1f} %",
        "",
        f"In the bucket, below {results_url}/{prefix}/ (the store ends with this demo):",
        "  page/0001.xml …  PAGE XML        alto/0001.xml …  ALTO XML",
        "  iiif.json        for a viewer    manifest.json    what was done, and the completion marker",
        f"The run log: {results_url}/status/logs/{prefix}.txt",
        "`make demo-view` keeps the store up and opens the pages with their text in a browser.",
    ]
    return "\n".join(rows)
