"""Bad input of every dialect and class: the exact sentence, which quotes the value and says what to do or what is used
instead.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from builders.gangs.declarations import koordinator_group, koordinator_pod, marked, pod_group, problems_of
from builders.gangs.sakkara import group as sakkara_group
from muster.dialects import coscheduling, kube_arbitrator, kube_batch, kueue_workload, native, volcano
from muster.dialects.composite_groups import CompositeGroups
from muster.dialects.definitions import Definition, Owner
from muster.dialects.marks import MarkSet
from muster.dialects.registry import DIALECTS, read_gang
from muster.gangs.facts import GangFacts, Severity

Spec = Mapping[str, Any]
GANG: Final = {"schedulingPolicy": {"gang": {"minCount": 2}}}
COMPOSED: Final = {**GANG, "parentCompositePodGroupName": "C"}
PLAIN: Final = "pod-group.scheduling.sigs.k8s.io/"
BATCH: Final = "scheduling.k8s.io/"
KUEUE: Final = "kueue.x-k8s.io/"


# -- declarations


def koordinator(**marks: str) -> GangFacts:
    return read_gang("koordinator/a/A", None, [koordinator_pod(**{"min_available": "3", **marks})])


def koordinator_object(spec: Spec, **marks: str) -> GangFacts:
    return read_gang("koordinator/a/A", koordinator_group(spec), [koordinator_pod(**marks)])


def lightweight(*minimums: str, policy: str = "") -> GangFacts:
    annotations = {f"{PLAIN}match-policy": policy} if policy else {}

    def pod(at: int, minimum: str) -> MarkSet:
        labels = {f"{PLAIN}name": "A", **({f"{PLAIN}min-available": minimum} if minimum else {})}
        return marked(f"w-{at}", labels=labels, annotations=annotations, created_seconds=100 + at)

    return read_gang("lightweight/a/A", None, [pod(at, minimum) for at, minimum in enumerate(minimums)])


def batch(*numbers: str) -> GangFacts:
    pods = [
        marked(f"w-{at}", annotations={f"{BATCH}group-name": "A", f"{BATCH}group-pod-num": number}, created_seconds=at)
        for at, number in enumerate(numbers)
    ]
    return read_gang("batch/a/A", None, pods)


def kueue(*counts: str) -> GangFacts:
    labels = {f"{KUEUE}pod-group-name": "A"}
    pods = [
        marked(f"w-{at}", labels=labels, annotations={f"{KUEUE}pod-group-total-count": count}, created_seconds=at)
        for at, count in enumerate(counts)
    ]
    return read_gang("kueue/a/A", None, pods)


def of_workload(*counts: Any) -> GangFacts:
    kind, assignments = kueue_workload.DEFINITION, [{"name": "main", "count": count} for count in counts]
    status = {"admission": {"podSetAssignments": assignments}}
    defined = Definition(kind.api_version, kind.kind, "a", "A", "uid-of-A", 50, status=status)
    return read_gang("kueue-workload/a/A", defined, [])


def by_coscheduling(spec: Spec, **annotations: str) -> GangFacts:
    written = {f"muster.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return read_gang("coscheduling/a/A", pod_group(coscheduling.DEFINITION, spec, written), [])


def by_kube_batch(spec: Spec) -> GangFacts:
    return read_gang("kube-batch/a/A", pod_group(kube_batch.DEFINITION, spec), [])


def by_volcano(spec: Spec) -> GangFacts:
    return read_gang("kube-batch/a/A", pod_group(volcano.DEFINITION, spec), [])


def in_policies(*policies: Any) -> GangFacts:
    return by_volcano({"minMember": 4, "subGroupPolicy": list(policies)})


def by_arbitrator(spec: Spec) -> GangFacts:
    kind, owner = kube_arbitrator.DEFINITION, Owner("batch/v1", "Job", "j", "uid-of-j")
    defined = Definition(kind.api_version, kind.kind, "a", "A", "uid-of-A", 50, {}, {}, spec, controller=owner)
    return read_gang("kube-arbitrator/a/Job.j", defined, [])


def by_native(spec: Spec) -> GangFacts:
    return read_gang("native/a/A", pod_group(native.DEFINITION, spec), [])


def below(*composites: tuple[str, Spec], groups: Iterable[str] = ("A",), spec: Spec = COMPOSED) -> GangFacts:
    """PodGroup a/A below CompositePodGroups of the namespace, and others below C."""
    trees, kind = CompositeGroups(), native.COMPOSITE
    for name, given in composites:
        workload = {"workloadRef": {"workloadName": "w", "templateName": name}}
        trees.put_composite(
            Definition(kind.api_version, kind.kind, "a", name, f"uid-{name}", 1, {}, {}, {**workload, **given})
        )
    defined = pod_group(native.DEFINITION, spec)
    for name in groups:
        trees.put_group(
            Definition(defined.api_version, "PodGroup", "a", name, f"uid-of-{name}", 50, {}, {}, defined.spec)
        )
    return read_gang("native/a/A", defined, [], ancestry=trees.ancestry(defined))


def gang_of_groups(number: object = 1, parent: object = None, **more: Any) -> Spec:
    above = {"parentCompositePodGroupName": parent} if parent is not None else {}
    return {"schedulingPolicy": {"gang": {"minGroupCount": number}}, **above, **more}


# -- what is said

CASES: Final[Mapping[str, Callable[[], GangFacts]]] = {
    "koordinator: minimum 0": lambda: koordinator(min_available="0"),
    "koordinator: minimum no number": lambda: koordinator(min_available="five"),
    "koordinator: minimum of an object below 0": lambda: koordinator_object({"minMember": -1}),
    "koordinator: two minimums": lambda: koordinator_object({"minMember": 5}, min_available="3"),
    "koordinator: total below the minimum": lambda: koordinator(total_number="2"),
    "koordinator: mode": lambda: koordinator(mode="Eager"),
    "koordinator: match policy": lambda: koordinator(match_policy="always"),
    "koordinator: duration": lambda: koordinator(waiting_time="soon"),
    "koordinator: group": lambda: koordinator(groups='["a/A","a"]'),
    "koordinator: group without the gang": lambda: koordinator(groups='["a/B"]'),
    "koordinator: topology strategy": lambda: koordinator(
        network_topology_spec='{"gatherStrategy":[{"layer":"rack","strategy":"Maybe"}]}'
    ),
    "lightweight: minimum 0": lambda: lightweight("0"),
    "lightweight: minimum below 0": lambda: lightweight("-2"),
    "lightweight: no minimum": lambda: lightweight(""),
    "koordinator: unknown field": lambda: koordinator_object({"minMember": 2, "minMembers": 3}),
    "coscheduling: unknown field": lambda: by_coscheduling({"minMember": 2, "minMembers": 3}),
    "kube-batch: unknown fields": lambda: by_kube_batch({"minMember": 2, "a": 1, "b": 1, "c": 1, "d": 1}),
    "kube-arbitrator: unknown field": lambda: by_arbitrator({"minAvailable": 1, "minMember": 2}),
    "volcano: unknown field": lambda: by_volcano({"minMember": 2, "minAvailable": 3}),
    "volcano: unknown field of a topology": lambda: by_volcano({"minMember": 2, "networkTopology": {"tier": 1}}),
    "volcano: unknown field of a policy": lambda: in_policies({"name": "ps", "minSize": 2}),
    "volcano: unknown field of the topology of a policy": lambda: in_policies(
        {"name": "ps", "networkTopology": {"tier": 1}}
    ),
    "volcano: unknown field of the selector of a policy": lambda: in_policies(
        {"name": "ps", "labelSelector": {"matchLabel": {"app": "ps"}}}
    ),
    "native: unknown field": lambda: by_native({**GANG, "minCount": 2}),
    "native: unknown field of gang": lambda: by_native({"schedulingPolicy": {"gang": {"minCount": 2, "maxCount": 3}}}),
    "native: unknown field of basic": lambda: by_native({"schedulingPolicy": {"basic": {"minCount": 2}}}),
    "native: unknown constraint": lambda: by_native({**GANG, "schedulingConstraints": {"nodes": []}}),
    "native: unknown field of a topology": lambda: by_native(
        {**GANG, "schedulingConstraints": {"topology": [{"key": "rack", "mode": "soft"}]}}
    ),
    "sakkara: unknown key": lambda: sakkara_group(size="2", sizes="3"),
    "lightweight: minimum above the limit": lambda: lightweight("99999999999"),
    "lightweight: pods differ": lambda: lightweight("2", "3"),
    "lightweight: match policy": lambda: lightweight("2", policy="often"),
    "batch: number 0": lambda: batch("0"),
    "batch: no number": lambda: batch("x"),
    "batch: pods differ": lambda: batch("2", "3"),
    "kueue: number 0": lambda: kueue("0"),
    "kueue: pods differ": lambda: kueue("2", "3"),
    "kueue-workload: number of admitted pods 0": lambda: of_workload(0),
    "kueue-workload: number of admitted pods no number": lambda: of_workload("7", None),
    "kueue-workload: number of admitted pods too large": lambda: of_workload(2**30, 2**30),
    "coscheduling: minimum 0": lambda: by_coscheduling({"minMember": 0}),
    "coscheduling: minimum below 0": lambda: by_coscheduling({"minMember": -5}),
    "coscheduling: no minimum": lambda: by_coscheduling({}),
    "coscheduling: minimum with a fraction": lambda: by_coscheduling({"minMember": 2.5}),
    "coscheduling: timeout below 0": lambda: by_coscheduling({"minMember": 2, "scheduleTimeoutSeconds": -5}),
    "coscheduling: minimum resources": lambda: by_coscheduling({"minMember": 2, "minResources": {"cpu": "lots"}}),
    "annotation: repair policy": lambda: by_coscheduling({"minMember": 2}, repair_policy="Later"),
    "annotation: elastic": lambda: by_coscheduling({"minMember": 2}, elastic="perhaps"),
    "annotation: topology policy": lambda: by_coscheduling({"minMember": 2}, topology="rack: sometimes pack"),
    "annotation: contradictory range": lambda: by_coscheduling({"minMember": 2}, topology="rack: hard range(5,2)"),
    "kube-batch: minimum 0": lambda: by_kube_batch({"minMember": 0}),
    "kube-batch: two minimums": lambda: by_kube_batch({"minMember": 2, "minMembers": 3}),
    "kube-batch: event of a policy": lambda: by_kube_batch(
        {"minMember": 2, "policy": [{"event": "Full", "action": "Restart"}]}
    ),
    "kube-arbitrator: minimum below 0": lambda: by_arbitrator({"minAvailable": -1}),
    "kube-arbitrator: node selector": lambda: by_arbitrator({"minAvailable": 1, "nodeSelector": "ssd"}),
    "sakkara: size 0": lambda: sakkara_group(size="0"),
    "sakkara: constraint": lambda: sakkara_group(size="2", constraints={"rack": {"type": "scatter"}}),
    "sakkara: contradictory range": lambda: sakkara_group(
        size="4", constraints={"rack": {"min": 3, "max": 2, "hard": True}}
    ),
    "volcano: minimum below 0": lambda: by_volcano({"minMember": -1}),
    "volcano: minima of tasks above the minimum": lambda: by_volcano(
        {"minMember": 5, "minTaskMember": {"ps": 2, "worker": 4}}
    ),
    "volcano: minimum of a task below 0": lambda: by_volcano({"minMember": 2, "minTaskMember": {"ps": -1}}),
    "volcano: minima of tasks no map": lambda: by_volcano({"minMember": 2, "minTaskMember": ["ps"]}),
    "volcano: mode of a topology": lambda: by_volcano({"minMember": 2, "networkTopology": {"mode": "firm"}}),
    "volcano: two tiers": lambda: by_volcano(
        {"minMember": 2, "networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}}
    ),
    "volcano: tier below 0": lambda: by_volcano({"minMember": 2, "networkTopology": {"highestTierAllowed": -1}}),
    "volcano: policies overlap": lambda: in_policies({"name": "all"}, {"name": "ps", "minSubGroups": 1}),
    "volcano: policies of one name": lambda: in_policies({"name": "ps"}, {"name": "ps"}),
    "volcano: subgroup size 0": lambda: in_policies({"name": "ps", "subGroupSize": 0}),
    "volcano: subgroups below 0": lambda: in_policies({"name": "ps", "minSubGroups": -1}),
    "volcano: operator of a selector": lambda: in_policies(
        {"name": "ps", "labelSelector": {"matchExpressions": [{"key": "x", "operator": "Near"}]}}
    ),
    "volcano: policies no list": lambda: by_volcano({"minMember": 4, "subGroupPolicy": {"name": "ps"}}),
    "volcano: priority class": lambda: by_volcano({"minMember": 1, "priorityClassName": "urgent"}),
    "native: minimum 0": lambda: by_native({"schedulingPolicy": {"gang": {"minCount": 0}}}),
    "native: minimum below 0": lambda: by_native({"schedulingPolicy": {"gang": {"minCount": -1}}}),
    "native: no minimum": lambda: by_native({"schedulingPolicy": {"gang": {}}}),
    "native: no policy": lambda: by_native({}),
    "native: both policies": lambda: by_native({"schedulingPolicy": {"gang": {"minCount": 2}, "basic": {}}}),
    "native: policy": lambda: by_native({"schedulingPolicy": {"queue": {}}}),
    "native: policy besides": lambda: by_native({"schedulingPolicy": {"gang": {"minCount": 2}, "queue": {}}}),
    "native: disruption mode": lambda: by_native({**GANG, "disruptionMode": {"half": {}}}),
    "native: preemption policy": lambda: by_native({**GANG, "preemptionPolicy": "Sometimes"}),
    "native: topology key": lambda: by_native({**GANG, "schedulingConstraints": {"topology": [{"key": "a b"}]}}),
    "native: two topology keys": lambda: by_native(
        {**GANG, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}
    ),
    "native: priority": lambda: by_native({**GANG, "priority": 2**40}),
    "native: parent no name": lambda: by_native({**GANG, "parentCompositePodGroupName": 5}),
    "composite: no parent": lambda: below(),
    "composite: minimum 0": lambda: below(("C", gang_of_groups(0))),
    "composite: minimum below 0": lambda: below(("C", gang_of_groups(-1))),
    "composite: minimum no number": lambda: below(("C", gang_of_groups("all"))),
    "composite: minimum above the children": lambda: below(("C", gang_of_groups(3)), groups=("A", "B")),
    "composite: policy": lambda: below(("C", {"schedulingPolicy": {"queue": {}}})),
    "composite: policy besides": lambda: below(
        ("C", {"schedulingPolicy": {"gang": {"minGroupCount": 1}, "queue": {}}})
    ),
    "composite: disruption mode": lambda: below(("C", gang_of_groups(disruptionMode={"half": {}}))),
    "composite: disruption mode all": lambda: below(("C", gang_of_groups(disruptionMode={"all": {}}))),
    "composite: topology key": lambda: below(
        ("C", gang_of_groups(schedulingConstraints={"topology": [{"key": "a b"}]}))
    ),
    "composite: parent no name": lambda: below(("C", gang_of_groups(parent=5))),
    "composite: parent does not exist": lambda: below(("C", gang_of_groups(parent="D"))),
    "composite: its own parent": lambda: below(("C", gang_of_groups(parent="C"))),
    "composite: cycle": lambda: below(("C", gang_of_groups(parent="D")), ("D", gang_of_groups(parent="C"))),
    "composite: depth": lambda: below(
        ("C", gang_of_groups(parent="1")),
        *[(str(n), gang_of_groups(parent=str(n + 1))) for n in range(1, 4)],
        ("4", gang_of_groups()),
    ),
    "composite: unknown field": lambda: below(("C", gang_of_groups(minCount=2))),
    "composite: unknown field of gang": lambda: below(
        ("C", {"schedulingPolicy": {"gang": {"minGroupCount": 1, "minCount": 2}}})
    ),
    "composite: unknown constraint": lambda: below(("C", gang_of_groups(schedulingConstraints={"nodes": []}))),
    "composite: unknown field of a topology": lambda: below(
        ("C", gang_of_groups(schedulingConstraints={"topology": [{"key": "rack", "mode": "soft"}]}))
    ),
    "composite: priority class": lambda: below(("C", gang_of_groups(priorityClassName="high"))),
    "composite: preemption policy": lambda: below(("C", gang_of_groups(preemptionPolicy="Sometimes"))),
    "composite: another Workload": lambda: below(
        ("C", gang_of_groups()), spec={**COMPOSED, "workloadRef": {"workloadName": "v"}}
    ),
    "composite: another priority": lambda: below(("C", gang_of_groups(priority=7)), spec={**COMPOSED, "priority": 5}),
    "composite: Workloads": lambda: below(
        ("C", gang_of_groups(parent="D")), ("D", gang_of_groups(workloadRef={"workloadName": "v"}))
    ),
    "composite: too many groups": lambda: below(("C", gang_of_groups()), groups=[f"g{n}" for n in range(101)]),
}
SENTENCES: Final = {
    name: (Severity[severity], message)
    for name, severity, message in (
        line.split("\t") for line in Path(__file__).with_name("bad_input.tsv").read_text().splitlines()
    )
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_quoted_with_what_to_do(name: str) -> None:
    assert problems_of(CASES[name]()) == [SENTENCES[name]]


def test_each_dialect_has_a_case_of_a_bad_minimum() -> None:
    assert SENTENCES.keys() == CASES.keys()
    named = {name.partition(":")[0] for name in CASES if "minimum" in name or "number" in name or "size" in name}
    assert named >= {dialect.name for dialect in DIALECTS}


def test_all_warnings_of_all_composites_are_given() -> None:
    given = {"disruptionMode": {"all": {}}, "preemptionPolicy": "Sometimes", "priorityClassName": "high", "maxCount": 3}
    parents = {"C": "1", "1": "2", "2": None}
    gang = below(*((name, gang_of_groups(parent=parent, **given)) for name, parent in parents.items()))
    messages = [message for severity, message in problems_of(gang) if severity is Severity.WARNING]
    assert len(messages) == 12
    for name in parents:
        of_one = "; ".join(each for each in messages if f'CompositePodGroup "a/{name}"' in each)
        assert all(field in of_one for field in given)


LONG: Final = "x" * 1_000_000


@pytest.mark.parametrize(
    "read",
    [
        lambda: koordinator(mode=LONG),
        lambda: by_volcano({"minMember": 2, "networkTopology": {"mode": LONG}}),
        lambda: in_policies({"name": LONG}),
        lambda: by_native({"schedulingPolicy": {LONG: {}}}),
        lambda: below(("C", {"schedulingPolicy": {LONG: {}}})),
        lambda: below(("C", gang_of_groups(disruptionMode=LONG))),
        lambda: below(("C", gang_of_groups(parent=[LONG]))),
        lambda: below(("C", gang_of_groups(int("9" * 4000)))),
    ],
)
def test_long_values_are_cut_where_they_are_quoted(read: Callable[[], GangFacts]) -> None:
    [(_, message)] = problems_of(read())
    assert len(message) < 800
