"""URLs on their way to a server: what is sent, to whom, and with whose credentials.

No path or query is re-encoded, decoded or normalised. Only what cannot stand on a request line at all (spaces, control
and non-ASCII characters) is percent-encoded, in UTF-8; a fragment and the userinfo are never sent as part of it.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from actors.fetcher.errors import Denied
from actors.redact import for_log

_NOT_ON_A_REQUEST_LINE = re.compile(r"[^\x21-\x7e]")
_RAW_BYTE = re.compile("[\udc80-\udcff]")
"""What a byte of a header that is not UTF-8 is read as (PEP 383)."""
_PARTS = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<rest>[^#]*)", re.IGNORECASE | re.DOTALL)
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """One request's address. `path` is its request target, with its query; `authorization` is the header that the
    userinfo stood for, which is nowhere else."""

    scheme: str
    host: str
    port: int
    path: str
    authorization: str | None

    @property
    def authority(self) -> str:
        """The host, in brackets where it is an IPv6 address, and the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    def redirected(self, location: str) -> Target:
        """Where a redirect leads. Credentials go on to the same server only (also from its http to its https port).

        Raises:
            Denied: not an http(s) URL.
        """
        plain = _RAW_BYTE.sub(lambda m: f"%{ord(m.group()) - 0xDC00:02X}", location.strip())
        target = parse(self._absolute(plain))
        if target.authorization is None and self.authorization is not None and self._is_same_server(target):
            return replace(target, authorization=self.authorization)
        return target

    def _absolute(self, location: str) -> str:
        """A relative location made whole (RFC 3986, section 5.2), its query as it is: urljoin loses an empty one."""
        if _PARTS.match(location):
            return location
        path, mark, query = location.partition("#")[0].partition("?")
        base = self.url.partition("?")[0] if path or mark else self.url
        return urljoin(base, path) + mark + query

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
        host, port = parts.hostname or "", _DEFAULT_PORTS[scheme] if parts.port is None else parts.port
    except ValueError as e:
        raise Denied(f"{for_log(url)} names no server that could be asked: {e}") from e
    if not host:
        raise Denied(f"{for_log(url)} names no server")
    rest = _NOT_ON_A_REQUEST_LINE.sub(lambda m: _encoded(m.group()), match["rest"])
    path = rest if rest.startswith("/") else f"/{rest}"
    return Target(scheme, host, port, path, _authorization(userinfo))


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
