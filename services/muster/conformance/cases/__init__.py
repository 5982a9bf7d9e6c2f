"""All cases of the suite, in the order in which they run."""

from typing import Final

from muster.conformance.case import Case
from muster.conformance.cases import (
    bad_input,
    completeness,
    composites,
    deadlines,
    determinism,
    explanations,
    preemption,
    random_clusters,
    revisions,
    rules,
    safety,
    topology_constraints,
    topology_trees,
    unusable_nodes,
)

CASES: Final[tuple[Case, ...]] = (
    *safety.CASES,
    *unusable_nodes.CASES,
    *rules.CASES,
    *random_clusters.SAFETY,
    *completeness.CASES,
    *random_clusters.COMPLETENESS,
    *preemption.CASES,
    *topology_constraints.CASES,
    *topology_trees.CASES,
    *random_clusters.TOPOLOGY,
    *composites.CASES,
    *determinism.CASES,
    *deadlines.CASES,
    *revisions.CASES,
    *bad_input.CASES,
    *explanations.CASES,
)
