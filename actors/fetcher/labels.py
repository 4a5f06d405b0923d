"""Turns a label of any Presentation version into a version 3 language map.

Owns the forms a label comes in (Presentation 2.1 section 4.3, Presentation 3 section 4) and nothing else.
"""

from __future__ import annotations

from typing import Any

from actors.fetcher.jsonld import as_list

LanguageMap = dict[str, list[str]]
NO_LANGUAGE = "none"


def language_map(label: Any) -> LanguageMap:
    """`{language: [text, …]}` from a string, a number, `{"@value", "@language"}`, a language map or a list of
    these.

    A label that is absent or holds no text gives an empty map.
    """
    found: LanguageMap = {}
    for item in as_list(label):
        if not isinstance(item, dict):
            _add(found, NO_LANGUAGE, item)
        elif "@value" in item:
            _add(found, item.get("@language"), item["@value"])
        else:
            for language, values in item.items():
                _add(found, language, values)
    return found


def first_text(label: LanguageMap) -> str:
    """The label's first text, for messages; empty when there is none."""
    return next((text for texts in label.values() for text in texts), "")


def _add(found: LanguageMap, language: Any, values: Any) -> None:
    if not isinstance(language, str) or language in ("", "@none"):
        language = NO_LANGUAGE
    texts = [text for text in map(_text, as_list(values)) if text is not None]
    if texts:
        found.setdefault(language, []).extend(texts)


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("@value")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value)
