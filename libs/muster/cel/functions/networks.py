"""Kubernetes' libraries for IP addresses and CIDR blocks."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from muster.cel.budget import Budget
from muster.cel.errors import Fault
from muster.cel.functions.overloads import Library
from muster.cel.network import BadAddress, Cidr, Ip
from muster.cel.values import STRING_UNIT

NETWORKS: Final = Library()
T = TypeVar("T")


def _parsed(budget: Budget, parse: Callable[[str], T], text: str) -> T:
    budget.charge(2 + len(text) // STRING_UNIT)
    try:
        return parse(text)
    except BadAddress as bad:
        raise Fault(str(bad)) from None


def _is_valid(budget: Budget, parse: Callable[[str], Any], text: str) -> bool:
    try:
        _parsed(budget, parse, text)
    except Fault:
        return False
    return True


@NETWORKS.function("ip", str)
def _ip(budget: Budget, text: str) -> Ip:
    return _parsed(budget, Ip.parsed, text)


@NETWORKS.function("isIP", str)
def _is_ip(budget: Budget, text: str) -> bool:
    return _is_valid(budget, Ip.parsed, text)


@NETWORKS.function("ip.isCanonical", str)
def _is_canonical(budget: Budget, text: str) -> bool:
    return str(_parsed(budget, Ip.parsed, text)) == text


@NETWORKS.function("cidr", str)
def _cidr(budget: Budget, text: str) -> Cidr:
    return _parsed(budget, Cidr.parsed, text)


@NETWORKS.function("isCIDR", str)
def _is_cidr(budget: Budget, text: str) -> bool:
    return _is_valid(budget, Cidr.parsed, text)


@NETWORKS.function("string", Ip)
@NETWORKS.function("string", Cidr)
def _string(budget: Budget, value: Ip | Cidr) -> str:
    budget.charge(2)
    return str(value)


def _property(name: str, read: Callable[[Ip], Any]) -> None:
    def implementation(budget: Budget, ip: Ip) -> Any:
        budget.charge(1)
        return read(ip)

    NETWORKS.method(name, Ip)(implementation)


_property("family", lambda ip: ip.address.version)
_property("isUnspecified", lambda ip: ip.address.is_unspecified)
_property("isLoopback", lambda ip: ip.address.is_loopback)
_property("isLinkLocalMulticast", lambda ip: ip.is_link_local_multicast)
_property("isLinkLocalUnicast", lambda ip: ip.address.is_link_local)
_property("isGlobalUnicast", lambda ip: ip.is_global_unicast)


@NETWORKS.method("ip", Cidr)
def _ip_of(budget: Budget, cidr: Cidr) -> Ip:
    budget.charge(1)
    return cidr.ip


@NETWORKS.method("prefixLength", Cidr)
def _prefix_length(budget: Budget, cidr: Cidr) -> int:
    budget.charge(1)
    return cidr.prefix


@NETWORKS.method("masked", Cidr)
def _masked(budget: Budget, cidr: Cidr) -> Cidr:
    budget.charge(4)
    return cidr.masked()


@NETWORKS.method("containsIP", Cidr, Ip)
def _contains_ip(budget: Budget, cidr: Cidr, ip: Ip) -> bool:
    budget.charge(8)
    return cidr.contains_ip(ip)


@NETWORKS.method("containsIP", Cidr, str)
def _contains_ip_text(budget: Budget, cidr: Cidr, text: str) -> bool:
    return _contains_ip(budget, cidr, _ip(budget, text))


@NETWORKS.method("containsCIDR", Cidr, Cidr)
def _contains_cidr(budget: Budget, cidr: Cidr, other: Cidr) -> bool:
    budget.charge(8)
    return cidr.contains(other)


@NETWORKS.method("containsCIDR", Cidr, str)
def _contains_cidr_text(budget: Budget, cidr: Cidr, text: str) -> bool:
    return _contains_cidr(budget, cidr, _cidr(budget, text))
