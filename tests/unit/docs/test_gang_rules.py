"""The table of docs/gang-rules.md lists exactly the marks and fields that the dialects read."""

import re
from typing import Any

import pytest

from builders.docs.pages import DOCS
from muster.clusterstate import static_volumes
from muster.coordinator.core.gang.subgroups import MAX_SUBGROUPS
from muster.dialects import (
    composites,
    coscheduling,
    kube_arbitrator,
    kube_batch,
    kueue,
    kueue_slices,
    kueue_workload,
    muster_annotations,
    native,
    resources,
    sakkara,
    sakkara_constraints,
    subgroups,
    values,
    volcano,
)
from muster.dialects.definitions import Definition
from muster.dialects.dialect import Declaration, Dialect
from muster.dialects.quota import QUOTA_WAITS
from muster.dialects.registry import DIALECTS
from muster.kube import pod_requests
from muster.lifecycle.queue_jobs import job
from muster.lifecycle.quota import ledger
from muster.topology import constraints, hyper_nodes, trees

ANY = "any"
BESIDES = {
    sakkara.NAME: {sakkara.GROUP_LABEL, sakkara.CONSTRAINT_LABELS},
    native.NAME: {native.FIELD},
    coscheduling.NAME: {QUOTA_WAITS},
    kube_batch.NAME: {QUOTA_WAITS},
    volcano.NAME: {volcano.TASK_SPEC, volcano.TASK_INDEX},
    kueue.NAME: {kueue.FAST_ADMISSION, kueue.SUSPENDING_PARENT, kueue.POD_INDEX, *kueue_slices.MARKS},
    kueue_workload.NAME: kueue_slices.MARKS,
}
LIMITS = {
    "gangs of one gang group": (values.MAX_GANGS_IN_A_GROUP,),
    "different resources that a pod requests": (pod_requests.MAX_RESOURCES,),
    "pods in a minimum": (values.MAX_COUNT,),
    "pods, and tasks, of a QueueJob": (job.MAX_PODS, job.MAX_TASKS),
    "levels of a topology tree": (trees.MAX_LEVELS,),
    "sizes of a storage class": (static_volumes.MAX_SIZES,),
    "trees of node labels": (trees.MAX_LABEL_KEY_TREES,),
    "tier, and members, of a HyperNode": (hyper_nodes.MAX_TIER, hyper_nodes.MAX_MEMBERS),
    "characters of a HyperNode's": (hyper_nodes.MAX_PATTERN_LENGTH,),
    "characters of `muster.dev/topology`": (constraints.MAX_TEXT_LENGTH,),
    "characters of Sakkara's `constraints`": (sakkara_constraints.MAX_TEXT_LENGTH,),
    "characters of a duration": (values.MAX_DURATION_LENGTH,),
    "resources of `minResources`": (resources.MAX_RESOURCES,),
    "labels of a SchedulingSpec's": (kube_arbitrator.MAX_LABELS,),
    "entries of `policy`": (kube_batch.MAX_POLICIES,),
    "tasks of `minTaskMember`": (volcano.MAX_TASKS,),
    "policies, and label keys of one, of `subGroupPolicy`": (subgroups.MAX_POLICIES, subgroups.MAX_KEYS),
    "requirements of its `labelSelector`, and `minSubGroups`": (
        subgroups.MAX_REQUIREMENTS,
        subgroups.MAX_MIN_SUBGROUPS,
    ),
    "subgroups of one gang with pending pods": (MAX_SUBGROUPS,),
    "pod sets of a Kueue gang with slices": (kueue_slices.MAX_POD_SETS,),
    "CompositePodGroups above a PodGroup, and PodGroups below a CompositePodGroup": (
        composites.MAX_DEPTH,
        composites.MAX_GANGS,
    ),
    "reservations of quota": (ledger.MAX_RESERVATIONS,),
}
MARKS = ("label", "annotation", "label prefix", "field")


class Watched(dict[str, Any]):
    """A spec that records which of its fields are read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)


def rows(section: str = "All labels, annotations and fields") -> list[list[str]]:
    lines = (DOCS / "gang-rules.md").read_text().partition(f"\n## {section}\n")[2].split("\n## ")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return table[2:]


def marks_of(dialect: str) -> set[str]:
    return {mark.strip("`") for mark, where, of, *_ in rows() if where.startswith(MARKS) and dialect in names(of)}


def fields_of(dialect: str) -> set[str]:
    documented = (
        mark.strip("`") for mark, where, of, *_ in rows() if not where.startswith(MARKS) and dialect in names(of)
    )
    return {field.partition(".")[0] for field in documented}


def names(dialects: str) -> set[str]:
    return set(dialects.lower().split(", "))


def fields_read_by(dialect: Dialect) -> set[str]:
    kind = dialect.definition
    if kind is None:
        return set()
    spec = Watched()
    dialect.read(Declaration("default", "gang", Definition(kind.api_version, kind.kind, "default", "gang", spec=spec)))
    return spec.asked


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_table_lists_exactly_the_marks_that_dialects_read(dialect: Dialect) -> None:
    assert marks_of(dialect.name) == dialect.marks.labels | dialect.marks.annotations | BESIDES.get(dialect.name, set())


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_the_table_lists_exactly_the_fields_that_dialects_read(dialect: Dialect) -> None:
    assert fields_of(dialect.name) == fields_read_by(dialect)


def test_the_table_lists_exactly_muster_annotations() -> None:
    assert marks_of(ANY) == {*muster_annotations.ANNOTATIONS, muster_annotations.PROVISIONING_REQUEST}


def test_every_row_names_an_existing_dialect() -> None:
    assert {name for row in rows() for name in names(row[2])} == {ANY, *(dialect.name for dialect in DIALECTS)}


def test_documented_limits_equal_the_code() -> None:
    documented = {what: limit for what, limit in rows("Limits") if "etcd" not in limit}
    assert len(documented) == len(LIMITS)
    for beginning, figures in LIMITS.items():
        [limit] = [limit for what, limit in documented.items() if what.startswith(beginning)]
        assert re.findall(r"\d+", limit.replace(",", "")) == [str(figure) for figure in figures], beginning
