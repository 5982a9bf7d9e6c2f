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
    random_rules,
    revisions,
    safety,
    shapes,
    topology,
)

CASES: Final[tuple[Case, ...]] = (
    *safety.CASES,
    *limits.CASES,
    *neighbours.CASES,
    *random_rules.SAFETY,
    *completeness.CASES,
    *random_rules.COMPLETENESS,
    *making_room.CASES,
    *shapes.CASES,
    *topology.CASES,
    *random_rules.TOPOLOGY,
    *determinism.CASES,
    *deadlines.CASES,
    *revisions.CASES,
    *bad_input.CASES,
    *explanations.CASES,
)
