"""URLs on their way to a server: what is sent, to whom, and with whose credentials.

Nothing is re-encoded, decoded or normalised. Only what cannot stand on a request line at all (spaces, control
and non-ASCII characters) is percent-encoded, in UTF-8; a fragment and the userinfo are never sent as part of it.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from actors.fetcher.errors import Denied
from actors.redact import for_log

_NOT_ON_A_REQUEST_LINE = re.compile(r"[^\x21-\x7e]")
_PARTS = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<rest>[^#]*)", re.IGNORECASE | re.DOTALL)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """One request's address. `url` holds no userinfo; `authorization` is the header that the userinfo stood for."""

    url: str
    scheme: str
    host: str
    port: int
    authorization: str | None

    def redirected(self, location: str) -> Target:
        """Where a redirect leads. Credentials go on to the same server only (also from its http to its https port).

        Raises:
            Denied: not an http(s) URL.
        """
        location = location.strip()
        absolute = location if _PARTS.match(location) else urljoin(self.url, location)
        target = parse(absolute)
        if target.authorization is None and self.authorization is not None and self._is_same_server(target):
            return Target(target.url, target.scheme, target.host, target.port, self.authorization)
        return target

    def _is_same_server(self, other: Target) -> bool:
        here, there = (self.scheme, self.port), (other.scheme, other.port)
        upgraded = here == ("http", 80) and there == ("https", 443)
        return self.host == other.host and (here == there or upgraded)


def parse(url: str) -> Target:
    """The address of `url`.

    Raises:
        Denied: it is not an http(s) URL with a host and a possible port.
    """
    match = _PARTS.match(url.strip())
    if match is None:
        raise Denied(f"{for_log(url)} is not an http or https URL")
    scheme = match["scheme"].lower()
    userinfo, _, place = match["authority"].rpartition("@")
    try:
        parts = urlsplit(f"{scheme}://{_ascii_host(place)}")
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[scheme]
    except ValueError as e:
        raise Denied(f"{for_log(url)} names no server that could be asked: {e}") from e
    if not host:
        raise Denied(f"{for_log(url)} names no server")
    rest = _NOT_ON_A_REQUEST_LINE.sub(lambda m: _encoded(m.group()), match["rest"])
    return Target(f"{scheme}://{_ascii_host(place)}{rest}", scheme, host, port, _authorization(userinfo))


def _ascii_host(place: str) -> str:
    """The host and port with an international name in its ASCII form (IDNA).

    Raises:
        ValueError: the name has none, or holds what no host can.
    """
    if not place.isascii():
        place = place.encode("idna").decode("ascii")
    if _NOT_ON_A_REQUEST_LINE.search(place):
        raise ValueError("the host holds a space or a control character")
    return place


def _encoded(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def _authorization(userinfo: str) -> str | None:
    if not userinfo:
        return None
    user, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return "Basic " + base64.b64encode(pair).decode("ascii")
