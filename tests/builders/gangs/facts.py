"""Gangs as facts, for scenarios of the coordinator's core.

gang("a").of(8, cpu=2).needing(5)
"""

from dataclasses import dataclass
from typing import ClassVar

from builders.core.objects import pod_class
from builders.gangs.gang import Gang
from muster.gangs.facts import GangFacts, PodFacts, Problem, Severity
from muster.topology.constraints import parse_constraints


@dataclass(frozen=True)
class CoreGang(Gang):
    """A gang of dialect "test" whose pods request whole cpus."""

    unsupported: ClassVar[tuple[str, ...]] = (
        "annotations",
        "labels",
        "node_selector",
        "selectors",
        "gates",
        "storage_class",
        "spec",
        "declared",
        "version",
    )

    def gang_facts(self) -> GangFacts:
        self.check_supported()
        minimum = self.size if self.minimum is None else self.minimum
        return GangFacts(
            id=self.id,
            dialect=self.dialect,
            namespace=self.namespace,
            name=self.name,
            incarnation=self.incarnation,
            evicted_whole=self.evicted_whole,
            never_preempts=not self.declared_preempts,
            counts_succeeded=self.counts_succeeded,
            uniform=self.homogeneous,
            resources=(("cpu", self.minimum_free_cpu * 1000),) if self.minimum_free_cpu else (),
            minimum=0 if self.problem else minimum,
            total=max(minimum, self.size),
            group=tuple(sorted(f"{self.dialect}/{name}" for name in self.group_names)),
            created_seconds=self.created_seconds,
            problems=(Problem(Severity.BLOCKING, self.problem),) if self.problem else (),
            match_policy=self.match_policy,
            mode=self.mode,
            priority=self.declared_priority,
            waiting_time_seconds=self.waiting_time_seconds,
            repair_policy=self.repair_policy,
            tree=self.tree,
            subgroups=self.subgroups,
            composites=self.composites,
            constraints=parse_constraints(self.constraints) if self.constraints else (),
        )

    def pods(self) -> list[PodFacts]:
        labels = [f"subgroup:{part}" for part, size in enumerate(self.parts) for _ in range(size)]
        labels += [""] * (self.size - len(labels))
        return [
            PodFacts(
                uid=f"{self.namespace}/{self.pod_name(number)}@{self.incarnation}",
                namespace=self.namespace,
                name=self.pod_name(number),
                class_id=pod_class(int(self.requests[number % len(self.requests)]["cpu"])).id,
                created_seconds=self.created_seconds,
                priority=self.priority or 0,
                gang=self.id,
                expected_seconds=self.expected_seconds,
                never_preempts=not self.preempts,
                budgets=self.budgets,
                label_set=labels[number],
            )
            for number in range(self.size)
        ]


def gang(name: str, namespace: str = "default") -> CoreGang:
    """Returns a gang without pods."""
    return CoreGang(name, dialect="test", namespace=namespace, size=0)
