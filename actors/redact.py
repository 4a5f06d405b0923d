"""What may be shown of a URL: two redactions, and the digest of a page's source (batchpod/README.md, sections 3 and 6).

`for_log` is for everything people read (log lines, reasons, the termination message); `credentials_only` for
the published documents, which must still name the image. Both cut text and never parse and re-join a URL,
since what they keep must stay byte for byte as the source has it.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_plus

_CREDENTIALS = ("token", "access_token", "sig", "signature", "expires", "key", "se", "sp", "sv", "sr")
_CREDENTIAL_PREFIXES = ("x-amz-", "x-goog-")

_URL = re.compile(r"""(?:(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*:)?\\?/\\?/[^\s"<>`]+""", re.IGNORECASE)
"""A URL in free text, also without a scheme or with JSON's escaped slashes."""
_AUTHORITY = re.compile(r"(?P<start>\s*(?:(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*:)?\\?/\\?/)(?P<authority>[^/?#\\]*)", re.IGNORECASE)
_CLOSING = ".,;:!)]}'"
"""What may follow a URL in a sentence."""
_LOOSE = re.compile(rf"(?<=[?&;])(?:{'|'.join(_CREDENTIALS)}|(?:x-amz-|x-goog-)[a-z0-9-]*)=[^\s&\"<>`]*", re.IGNORECASE)
"""A credential outside anything that looks like a URL: a path with its query alone, or a URL with a space in it."""


def for_log(text: str) -> str:
    """`text` with userinfo and the whole query (and fragment) removed from every URL in it."""
    return _LOOSE.sub("", _URL.sub(lambda match: _shown(match.group()), text))


def credentials_only(url: str) -> str:
    """`url` without userinfo and without the query parameters that are credentials; all else byte for byte.

    A query that held nothing else goes with its question mark.
    """
    head, mark, rest = _without_userinfo(url).partition("?")
    query, hash_mark, fragment = rest.partition("#")
    if "#" in head or not query:
        return head + mark + rest
    kept = "&".join(k for k in map(_without_credentials, query.split("&")) if k is not None)
    return head + (mark + kept if kept else "") + hash_mark + fragment


def source_digest(url: str) -> str:
    """The identity of a page's source: sha256 (hex) of its URL without credentials."""
    return hashlib.sha256(credentials_only(url).encode("utf-8", "surrogatepass")).hexdigest()


def _without_credentials(parameter: str) -> str | None:
    """One `&`-separated parameter; None when it is a credential. `;` separates too on some servers."""
    first, *others = parameter.split(";")
    if _is_credential(first):
        return None
    return ";".join([first, *(o for o in others if not _is_credential(o))])


def _is_credential(parameter: str) -> bool:
    name = unquote_plus(parameter.partition("=")[0]).strip().lower()
    return name in _CREDENTIALS or name.startswith(_CREDENTIAL_PREFIXES)


def _shown(url: str) -> str:
    bare = url.rstrip(_CLOSING)
    return re.split(r"[?#]", _without_userinfo(bare), maxsplit=1)[0] + url[len(bare) :]


def _without_userinfo(url: str) -> str:
    match = _AUTHORITY.match(url)
    if match is None:
        return url
    return match["start"] + match["authority"].rpartition("@")[2] + url[match.end() :]
