"""Which addresses may be asked: a guard against manifests that point into the pod's own surroundings.

Link-local and metadata addresses never; private and loopback ones only where the run allows them. What is
checked is what is connected to: names are resolved here, once, and only addresses that passed go to the
connector, so a name that changes its mind in between gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from actors.fetcher.errors import Denied

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(a)
    for a in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254")
)
"""Instance metadata outside the link-local networks: Alibaba, Azure, Oracle, AWS (metadata, credentials),
Google."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_IPV4_COMPATIBLE = ipaddress.ip_network("::/96")


class AddressRefused(OSError):
    """No address of a host may be asked. An OSError, since that is what a connector expects of its resolver."""


def refusal(address: Address, *, allow_private: bool) -> str | None:
    """Why `address` must not be asked, as the end of a sentence; None when it may be."""
    for inner in (address, *_embedded(address)):
        if inner.is_link_local:
            return "a link-local address"
        if inner in _METADATA:
            return "a metadata address"
        if inner.is_multicast:
            return "a multicast address"
        if not allow_private and not inner.is_global:
            return "a private or loopback address (FETCH_ALLOW_PRIVATE is false)"
    return None


def literal(host: str) -> Address | None:
    """The address that `host` is, also in the odd spellings that resolvers take (`127.1`, `0x7f000001`,
    `2130706433`); None for a name."""
    bare = host.strip("[]").rstrip(".")
    try:
        return ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(bare)) if bare.isascii() else None
    except OSError:
        return None


def check_literal(host: str, *, allow_private: bool) -> None:
    """Pass names and allowed addresses.

    Raises:
        Denied: `host` is an address that must not be asked.
    """
    address = literal(host)
    why = None if address is None else refusal(address, allow_private=allow_private)
    if why is not None:
        raise Denied(f"{host} is {why} and is not asked")


class GuardedResolver(AbstractResolver):
    """Resolves names for aiohttp and leaves out every address that must not be asked.

    `trusted` hosts and ports (the environment's proxies) are not checked.
    """

    def __init__(self, *, allow_private: bool, trusted: frozenset[tuple[str, int]]) -> None:
        self._allow_private, self._trusted = allow_private, trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `host` that may be asked.

        Raises:
            AddressRefused: it has addresses, but none of those.
            OSError: it cannot be resolved.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        results: list[ResolveResult] = []
        why: str | None = None
        for kind, _, protocol, _, place in found:
            address = ipaddress.ip_address(str(place[0]).partition("%")[0])
            refused = None if (host, port) in self._trusted else refusal(address, allow_private=self._allow_private)
            if refused is None:
                results.append(
                    ResolveResult(
                        hostname=host,
                        host=str(place[0]),
                        port=port,
                        family=kind,
                        proto=protocol,
                        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                    )
                )
            else:
                why = why or refused
        if not results and why is not None:
            raise AddressRefused(f"{host} has {why} and is not asked")
        return results

    async def close(self) -> None:
        """Nothing is held."""


def _embedded(address: Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 one stands for: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [a for a in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())) if a is not None]
    if (address in _NAT64 or address in _IPV4_COMPATIBLE) and int(address) > 1:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return inner
