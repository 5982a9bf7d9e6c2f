"""Validation of lists and of names in resource.k8s.io: drivers, pools, devices, requests, attributes, counters."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from muster.localcluster.apiserver.metadata import label_problems, subdomain_problems
from muster.localcluster.apiserver.status import Cause, duplicate, invalid_value, required, too_long, too_many

MAX_DRIVER_LENGTH: Final = 63
MAX_POOL_LENGTH: Final = 253
MAX_ID_LENGTH: Final = 32

_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_is_identifier: Final = re.compile(_IDENTIFIER).fullmatch
_IDENTIFIER_MESSAGE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    f"or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{_IDENTIFIER}')"
)
T = TypeVar("T")


def label_causes(name: str | None, field: str) -> Iterator[Cause]:
    """Problems of the name of a device, request or counter."""
    if not name:
        yield required(field)
    else:
        for problem in label_problems(name):
            yield invalid_value(field, name, problem)


def subdomain_causes(name: str | None, field: str) -> Iterator[Cause]:
    """Problems of the name of an object."""
    if not name:
        yield required(field)
    else:
        for problem in subdomain_problems(name):
            yield invalid_value(field, name, problem)


def driver_causes(name: str | None, field: str) -> Iterator[Cause]:
    if not name:
        yield required(field)
        return
    if len(name) > MAX_DRIVER_LENGTH:
        yield too_long(field, MAX_DRIVER_LENGTH)
    for problem in subdomain_problems(name.lower()):
        yield invalid_value(field, name, problem)


def pool_causes(name: str | None, field: str) -> Iterator[Cause]:
    if not name:
        yield required(field)
        return
    if len(name) > MAX_POOL_LENGTH:
        yield too_long(field, MAX_POOL_LENGTH)
    for part in name.split("/"):
        for problem in subdomain_problems(part):
            yield invalid_value(field, part, problem)


def attribute_causes(name: str, field: str, *, domain_required: bool = False) -> Iterator[Cause]:
    """Problems of the name of an attribute or a capacity: "id" or "domain/id"."""
    domain, slash, identifier = name.rpartition("/")
    if "/" in domain:
        yield invalid_value(field, name, "must not contain more than one slash")
        return
    if slash and not domain:
        yield invalid_value(field, "", "the domain must not be empty")
    elif slash:
        yield from driver_causes(domain, field)
    elif domain_required:
        yield invalid_value(field, name, "a fully qualified name must be a domain and a name separated by a slash")
    if slash and not identifier:
        yield invalid_value(field, "", "the name must not be empty")
        return
    if len(identifier) > MAX_ID_LENGTH:
        yield too_long(field, MAX_ID_LENGTH)
    if not _is_identifier(identifier):
        yield invalid_value(field, identifier, _IDENTIFIER_MESSAGE)


def each_causes(
    items: list[T], maximum: int, causes: Callable[[T, str], Iterable[Cause]], field: str
) -> Iterator[Cause]:
    """Problems of the items of a list, or only that it has too many."""
    if len(items) > maximum:
        yield too_many(field, len(items), maximum)
        return
    for index, each in enumerate(items):
        yield from causes(each, f"{field}[{index}]")


def duplicate_causes(names: Iterable[str | None], field: str) -> Iterator[Cause]:
    """Problems of items with a name that occurs before."""
    seen: set[str | None] = set()
    for index, each in enumerate(names):
        if each in seen:
            yield duplicate(f"{field}[{index}]", each)
        seen.add(each)
