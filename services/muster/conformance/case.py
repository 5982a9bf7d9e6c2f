"""A conformance case: an id, a title that states the requirement, and a coroutine that checks it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from muster.placement.v1 import placement_pb2 as pb

if TYPE_CHECKING:
    from muster.conformance.case_run import CaseRun
    from muster.conformance.failed_call import Call

CaseFunction = Callable[["CaseRun"], Awaitable[None]]


class CaseGroup(StrEnum):
    """Subject of a case; ids begin with the letter of their group."""

    SAFETY = "safety"
    COMPLETENESS = "completeness"
    TOPOLOGY = "topology"
    DETERMINISM = "determinism"
    DEADLINES = "deadlines"
    REVISIONS = "revisions"
    BAD_INPUT = "bad-input"
    EXPLANATIONS = "explanations"


LETTERS = dict(zip("SCTDLRBE", CaseGroup, strict=True))


class Feature(StrEnum):
    """Optional features of an implementation, named as in DescribeResponse.features."""

    PARTIAL = "partial"
    PREEMPTION = "preemption"
    CONSTRAINTS = "constraints"
    POD_TOPOLOGY = "pod-topology"
    COMPOSITES = "composites"
    HOST_PORTS = "host-ports"
    POD_ANTI_AFFINITY = "pod-anti-affinity"
    NODE_SELECTION = "node-selection"
    VOLUMES = "volumes"
    EXPLANATIONS = "explanations"


FEATURES = {
    pb.FEATURE_PARTIAL: Feature.PARTIAL,
    pb.FEATURE_PREEMPTION: Feature.PREEMPTION,
    pb.FEATURE_CONSTRAINTS: Feature.CONSTRAINTS,
    pb.FEATURE_POD_TOPOLOGY: Feature.POD_TOPOLOGY,
    pb.FEATURE_COMPOSITES: Feature.COMPOSITES,
    pb.FEATURE_HOST_PORTS: Feature.HOST_PORTS,
    pb.FEATURE_POD_ANTI_AFFINITY: Feature.POD_ANTI_AFFINITY,
    pb.FEATURE_NODE_SELECTION: Feature.NODE_SELECTION,
    pb.FEATURE_VOLUMES: Feature.VOLUMES,
    pb.FEATURE_EXPLANATIONS: Feature.EXPLANATIONS,
}


class Expected(NamedTuple):
    """Expected answer for the only group of a request. `members`: how many must be placed, if that matters."""

    placed: bool
    members: int | None = None
    proved: bool = False
    """Not placed, and proved infeasible."""


class Failed(Exception):
    """The implementation violates the requirement; the message says what it did instead.

    `expected`: the answer that the last call should have had, if one call shows the failure. `call`: the call that
    shows it, if that may not be the last one.
    """

    def __init__(self, message: str, expected: Expected | None = None, call: "Call | None" = None) -> None:
        super().__init__(message)
        self.expected, self.call = expected, call


class Unsafe(Failed):
    """An answer that no case allows: acting on it would do harm."""


@dataclass(frozen=True)
class Case:
    """`needs`: the case is skipped for implementations without these features.

    `random`: the case generates many clusters, so one run with shuffled snapshots is enough.
    """

    id: str
    title: str
    function: CaseFunction
    needs: tuple[Feature, ...] = ()
    random: bool = False

    @property
    def group(self) -> CaseGroup:
        return LETTERS[self.id[0]]


class Cases(list[Case]):
    """The cases of one module, in order."""

    def case(
        self,
        id: str,  # noqa: A002
        title: str,
        *needs: Feature,
        random: bool = False,
    ) -> Callable[[CaseFunction], CaseFunction]:
        """Decorator that adds a function as a case."""

        def add(function: CaseFunction) -> CaseFunction:
            self.append(Case(id, title, function, needs, random))
            return function

        return add
