"""Resource requests of pods, as Kubernetes computes them from containers, overhead, pod level and resizes.

Amounts are summed as exact quantities in billionths and rounded up once, at the end.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw, Struct

from muster.gangs.facts import PODS, Amounts
from muster.gangs.quantity import NANOS_PER_MILLI, BadQuantity, amount_of, parse_quantity, rounded_up
from muster.gangs.quoting import quoted
from muster.kube.objects import UNREADABLE

MAX_RESOURCES: Final = 100
"""Resources that a pod may request; those of nodes that exist are few."""
MAX_NAMES: Final = 1000
"""Resources that are read of one field; of more, those without a domain come first."""
MAX_PROBLEMS: Final = 10
"""Problems of one pod that are collected; each is compared with the others."""

Nanos = dict[str, int]
"""Quantities in billionths by resource name."""


class ContainerRequestFields(Struct, frozen=True):
    """Raw JSON of the fields that determine a container's requests; empty where absent."""

    name: str
    resources: bytes = b""
    allocated: bytes = b""
    actual: bytes = b""
    restarts: bool = False
    """A restartable init container (a sidecar)."""


class PodRequestFields(Struct, frozen=True):
    """Raw JSON of the fields that determine a pod's requests; empty where absent."""

    containers: tuple[ContainerRequestFields, ...] = ()
    init_containers: tuple[ContainerRequestFields, ...] = ()
    overhead: bytes = b""
    resources: bytes = b""
    allocated: bytes = b""
    actual: bytes = b""
    conditions: bytes = b""


class _Resources(Struct, frozen=True):
    requests: dict[str, Raw] | None = None


class _Condition(Struct, frozen=True):
    type: str = ""
    reason: str | None = None


_resources: Final = msgspec.json.Decoder(_Resources)
_amounts: Final = msgspec.json.Decoder(dict[str, Raw] | None)
_conditions: Final = msgspec.json.Decoder(list[_Condition] | None)


def effective_requests(fields: PodRequestFields, problems: list[str]) -> Amounts:
    """Amounts that a node must have free for the pod, "pods: 1" included, without zeros, sorted by name.

    Malformed quantities count as zero and are added to `problems`, and so are resources beyond MAX_RESOURCES: every
    name costs each service memory per node and pod class.
    """
    requests = _Requests(fields, problems)
    total = requests.of_pod()
    if len(total) > MAX_RESOURCES:
        names = sorted(total, key=lambda name: ("/" in name, name))
        problems.append(
            f"it requests {len(total) + requests.unread} different resources, "
            f"but at most {MAX_RESOURCES} are considered; the first that is not is {quoted(names[MAX_RESOURCES])}"
        )
        total = {name: total[name] for name in names[:MAX_RESOURCES]}
    amounts = {name: amount_of(name, nanos, round_up=True) for name, nanos in total.items() if nanos > 0}
    amounts[PODS] = 1
    return tuple(sorted(amounts.items()))


def exact_requests(fields: PodRequestFields, problems: list[str]) -> Nanos:
    """The requests in billionths, without "pods: 1"."""
    return _Requests(fields, problems).of_pod()


def container_requests(container: ContainerRequestFields) -> list[tuple[str, int]]:
    """Amounts that a container's spec requests, zeros included, by name; malformed quantities count as zero."""
    requests = _Requests(PodRequestFields(), []).of_container(container)
    return [(name, amount_of(name, nanos, round_up=True)) for name, nanos in sorted(requests.items())]


class _Requests:
    """Computes the requests of one pod, and collects problems."""

    def __init__(self, fields: PodRequestFields, problems: list[str]) -> None:
        self._fields = fields
        self._problems = problems
        self._infeasible = _resize_is_infeasible(fields.conditions)
        self.unread = 0
        """Resources that are not read."""

    def of_pod(self) -> Nanos:
        # A pending resize counts with the larger of old and new requests; an infeasible resize does not
        # count.
        if self._infeasible or any(each.allocated or each.actual for each in self._containers()):
            specified, allocated, actual = (self._summed(of) for of in (self._specified, self._allocated, self._actual))
            total = _largest([allocated, actual] if self._infeasible else [specified, allocated, actual])
        else:  # all three are the same
            total = self._summed(self._specified)
        overhead = self._amounts(self._fields.overhead, "overhead")
        total.update(self._pod_level(overhead))
        return _sum([total, overhead])

    def _containers(self) -> Iterable[ContainerRequestFields]:
        return (*self._fields.containers, *self._fields.init_containers)

    def of_container(self, container: ContainerRequestFields) -> Nanos:
        return self._specified(container, f"containers {quoted(container.name)}")

    def _summed(self, of: Callable[[ContainerRequestFields, str], Nanos]) -> Nanos:
        running = _sum(of(each, f"containers {quoted(each.name)}") for each in self._fields.containers)
        sidecars: Nanos = {}
        starting: Nanos = {}
        for each in self._fields.init_containers:
            own = of(each, f"initContainers {quoted(each.name)}")
            if not own:
                continue
            at_its_start = _sum([sidecars, own])
            if each.restarts:
                sidecars = at_its_start
            starting = _largest([starting, at_its_start])
        return _largest([_sum([running, sidecars]), starting])

    def _specified(self, container: ContainerRequestFields, where: str) -> Nanos:
        return self._requests(container.resources, f"{where} resources.requests") or {}

    def _allocated(self, container: ContainerRequestFields, where: str) -> Nanos:
        if _present(container.allocated):
            return self._amounts(container.allocated, f"{where} status.allocatedResources")
        return {} if self._infeasible else self._specified(container, where)

    def _actual(self, container: ContainerRequestFields, where: str) -> Nanos:
        actual = self._requests(container.actual, f"{where} status.resources.requests")
        return self._allocated(container, where) if actual is None else actual

    def _pod_level(self, overhead: Nanos) -> Nanos:
        """Pod-level requests, which replace those of the containers where set."""
        specified = self._requests(self._fields.resources, "resources.requests")
        if not specified:
            return {}
        allocated = self._amounts(self._fields.allocated, "status.allocatedResources")
        actual = self._requests(self._fields.actual, "status.resources.requests") or {}
        in_status = [_difference(each, overhead) for each in (allocated, actual)]
        seen = any(in_status)
        total = _largest(in_status if self._infeasible and seen else [specified, *in_status])
        return {name: nanos for name, nanos in total.items() if _supported_at_pod_level(name)}

    def _requests(self, raw: bytes, where: str) -> Nanos | None:
        if not _present(raw):
            return None
        try:
            requests = _resources.decode(raw).requests
        except UNREADABLE:
            self._add_problem(f"{where} cannot be read: {_shown(raw)}")
            return None
        return None if requests is None else self._parsed(requests, where)

    def _amounts(self, raw: bytes, where: str) -> Nanos:
        if not _present(raw):
            return {}
        try:
            amounts = _amounts.decode(raw)
        except UNREADABLE:
            self._add_problem(f"{where} cannot be read: {_shown(raw)}")
            return {}
        return self._parsed(amounts or {}, where)

    def _parsed(self, amounts: dict[str, Raw], where: str) -> Nanos:
        parsed: Nanos = {}
        if len(amounts) > MAX_NAMES:
            self.unread += len(amounts) - MAX_NAMES
            names = list(islice((name for name in amounts if "/" not in name), MAX_NAMES))
            names += islice((name for name in amounts if "/" in name), MAX_NAMES - len(names))
            amounts = {name: amounts[name] for name in names}
        for name, raw in amounts.items():
            text = quantity_text(raw)
            try:
                nanos = parse_quantity(text)
            except BadQuantity as error:
                self._add_problem(f"{where} of {quoted(name)}: {error}")
                continue
            if nanos < 0:
                self._add_problem(f"{where} of {quoted(name)}: {quoted(text)} is less than zero")
            else:
                # The API server rounds requests up to a thousandth.
                parsed[name] = rounded_up(nanos, NANOS_PER_MILLI)
        return parsed

    def _add_problem(self, problem: str) -> None:
        if len(self._problems) < MAX_PROBLEMS and problem not in self._problems:
            self._problems.append(problem)


def quantity_text(raw: Raw) -> str:
    """The text of a quantity, from a JSON string or number."""
    try:
        return msgspec.json.decode(raw, type=str)
    except UNREADABLE:
        return bytes(raw).decode(errors="replace")


def _present(raw: bytes) -> bool:
    return raw not in (b"", b"null")


def _shown(raw: bytes) -> str:
    return quoted(raw[:256].decode(errors="replace"))


def _supported_at_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _resize_is_infeasible(conditions: bytes) -> bool:
    if b'"PodResizePending"' not in conditions:
        return False
    try:
        known = _conditions.decode(conditions) or []
    except UNREADABLE:
        return False
    return next((each.reason == "Infeasible" for each in known if each.type == "PodResizePending"), False)


def _sum(parts: Iterable[Nanos]) -> Nanos:
    total: Nanos = {}
    for part in parts:
        for name, nanos in part.items():
            total[name] = total.get(name, 0) + nanos
    return total


def _largest(parts: Iterable[Nanos]) -> Nanos:
    total: Nanos = {}
    for part in parts:
        for name, nanos in part.items():
            total[name] = max(total.get(name, nanos), nanos)
    return total


def _difference(amounts: Nanos, less: Nanos) -> Nanos:
    return {name: nanos - less.get(name, 0) for name, nanos in amounts.items()}
