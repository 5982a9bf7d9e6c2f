"""IP addresses and CIDR blocks as values of CEL."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from muster.gangs.quoting import quoted

_PREFIX: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_LONGEST: Final = 64
_BROADCAST: Final = IPv4Address("255.255.255.255")
_LOCAL_MULTICAST: Final = ip_network("224.0.0.0/24")


class BadAddress(ValueError):
    """`text` is not an IP address or CIDR block."""

    def __init__(self, text: str, expected: str) -> None:
        self.text = text
        super().__init__(f"{quoted(text)} is not {expected}, without a zone and not mapped from IPv4")


@dataclass(frozen=True, slots=True)
class Ip:
    """An address of IPv4 or IPv6."""

    address: IPv4Address | IPv6Address

    @classmethod
    def parsed(cls, text: str) -> "Ip":
        """The address that a text states. Raises BadAddress."""
        try:
            address = ip_address(text) if len(text) <= _LONGEST and "%" not in text else None
        except ValueError:
            address = None
        if address is None or (isinstance(address, IPv6Address) and address.ipv4_mapped is not None):
            raise BadAddress(text, "an IP address")
        return cls(address)

    @property
    def is_link_local_multicast(self) -> bool:
        """In 224.0.0.0/24, or a multicast address of IPv6 with the scope of a link."""
        if isinstance(self.address, IPv4Address):
            return self.address in _LOCAL_MULTICAST
        first, second = self.address.packed[:2]
        return first == 0xFF and second & 0x0F == 0x02

    @property
    def is_global_unicast(self) -> bool:
        """One host that may be on another link; private addresses are."""
        address = self.address
        special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
        return not special and address != _BROADCAST

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address and the length of the prefix that it has in common with its block."""

    ip: Ip
    prefix: int
    """Bits."""

    @classmethod
    def parsed(cls, text: str) -> "Cidr":
        """The block that a text such as 10.0.0.0/8 states. Raises BadAddress."""
        address, _, prefix = text.partition("/")
        try:
            ip = Ip.parsed(address)
        except BadAddress:
            raise BadAddress(text, "a CIDR block") from None
        if _PREFIX.fullmatch(prefix) is None or int(prefix) > ip.address.max_prefixlen:
            raise BadAddress(text, "a CIDR block")
        return cls(ip, int(prefix))

    def masked(self) -> "Cidr":
        """The block with its first address."""
        first = ip_network((self.ip.address, self.prefix), strict=False).network_address
        return Cidr(Ip(first), self.prefix)

    def contains(self, other: "Cidr") -> bool:
        """Whether all addresses of the other block are in this one."""
        if self.ip.address.version != other.ip.address.version or self.prefix > other.prefix:
            return False
        return Cidr(other.ip, self.prefix).masked().ip == self.masked().ip

    def contains_ip(self, ip: Ip) -> bool:
        """Whether the address is in the block."""
        return self.contains(Cidr(ip, ip.address.max_prefixlen))

    def __str__(self) -> str:
        return f"{self.ip}/{self.prefix}"
