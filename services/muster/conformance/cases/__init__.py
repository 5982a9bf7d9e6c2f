"""All cases of the suite, in the order in which they are played."""

from typing import Final

from muster.conformance.case import Case
from muster.conformance.cases import (
    bad_input,
    completeness,
    deadlines,
    determinism,
    explanations,
    limits,
    making_room,
    neighbours,
    revisions,
    safety,
    shapes,
    topology,
)

CASES: Final[tuple[Case, ...]] = (
    *safety.CASES,
    *limits.CASES,
    *neighbours.CASES,
    *completeness.CASES,
    *making_room.CASES,
    *shapes.CASES,
    *topology.CASES,
    *determinism.CASES,
    *deadlines.CASES,
    *revisions.CASES,
    *bad_input.CASES,
    *explanations.CASES,
)
