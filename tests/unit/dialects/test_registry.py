"""The registry: precedence of dialects, marks kept of a pod, and the same facts on every replica."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.gangs.declarations import koordinator_group, koordinator_pod, marked, problems_of
from builders.gangs.gang import KOORDINATOR
from builders.kube.objects import pod
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, MarkSet, Membership, PodAge
from muster.dialects.progress import PodWrite, Progress, Stage, Writes
from muster.dialects.registry import DIALECTS, Registry, defined_gang, gang_marks, membership_of, read_gang
from muster.dialects.sources import blocking, choose, from_pods, gang_facts, member_of
from muster.dialects.values import parse_count
from muster.gangs.facts import GangFacts, GangMode, Problem, Severity
from muster.kube.gang_marks import definition as definition_of
from muster.kube.gang_marks import gang_marks as marks_of_pod
from muster.kube.gang_marks import pod_age
from muster.kube.objects import decode_pod_group

LIGHTWEIGHT = "pod-group.scheduling.sigs.k8s.io/"
KOORDINATOR_LABEL = "pod-group.scheduling.sigs.k8s.io"
COSCHEDULING = "scheduling.x-k8s.io/pod-group"


def fake_dialect() -> Dialect:
    """A complete dialect: pods name a gang by one label, and another label has the minimum."""

    def membership(marks: GangMarks) -> Membership | None:
        name = marks.label("fake/gang")
        return None if name is None else member_of("fake", marks.namespace, name, "label fake/gang")

    def read(declaration: Declaration) -> GangFacts:
        problems: list[Problem] = []
        sources, differences = from_pods(declaration.pods, GangMarks.label, "fake/minimum", "label fake/minimum")
        minimum = choose(sources, parse_count, 0, problems, blocking, "set it to the number of pods")
        facts = gang_facts("fake", declaration)
        return replace(facts, minimum=minimum, total=minimum, problems=(*differences, *problems))

    return Dialect(
        name="fake",
        marks=PodMarks(labels=frozenset({"fake/gang", "fake/minimum"}), naming="label fake/gang"),
        membership=membership,
        read=read,
        definition=DefinitionKind("fake.example.com", "v1", "FakeGroup", "fakegroups"),
        write_progress=lambda progress: Writes(pods=(PodWrite("u", progress.stage.name),)),
        wanted_rank=lambda _annotations, labels: int(labels["fake/rank"]),
        timeout_annotations=lambda timed_out: {"fake/timeout": "true" if timed_out else None},
    )


def test_one_value_is_all_that_a_dialect_needs() -> None:
    registry = Registry((*DIALECTS, fake_dialect()))
    marks = registry.gang_marks("a", {"fake/gang": "A", "fake/minimum": "3", "app": "x"}, None)
    assert marks == GangMarks("a", (("fake/gang", "A"), ("fake/minimum", "3")))
    assert registry.membership_of(marks) == Membership("fake/a/A")
    pods = [MarkSet(marks, PodAge(1, "w-0", "u"))]
    facts = registry.read_gang("fake/a/A", None, pods)
    assert (facts.id, facts.dialect, facts.minimum, facts.problems) == ("fake/a/A", "fake", 3, ())
    assert registry.defined_gang(Definition("fake.example.com/v1", "FakeGroup", "a", "A")) == "fake/a/A"
    assert registry.writes_progress("fake/a/A")
    assert registry.progress_writes(Progress(facts, Stage.BOUND)).pods == (PodWrite("u", "BOUND"),)
    assert registry.timeout_annotations("fake/a/A", timed_out=True) == {"fake/timeout": "true"}
    assert registry.labels_at_bind("fake/a/A", 0, 1) == {}
    assert registry.event_reason("fake/a/A") == "FailedScheduling"
    assert registry.wanted_rank("fake/a/A", {}, {"fake/rank": "5"}) == 5
    incomplete = registry.membership_of(registry.gang_marks("a", {"fake/minimum": "3"}, None))
    assert incomplete == Membership(problem="fake/minimum without the gang's name: add it (label fake/gang)")
    both = registry.gang_marks("a", {COSCHEDULING: "c", "fake/gang": "A"}, None)
    assert registry.membership_of(both) == Membership("coscheduling/a/c")
    warnings = problems_of(registry.read_gang("coscheduling/a/c", None, [MarkSet(both, PodAge(1, "w-0", "u"))]))
    assert any("also has marks of the dialect fake (fake/gang)" in message for _, message in warnings)


def test_the_order_of_precedence_is_the_documented_one() -> None:
    order = [
        "koordinator",
        "lightweight",
        "coscheduling",
        "kube-batch",
        "batch",
        "kube-arbitrator",
        "sakkara",
        "native",
        "kueue",
        "kueue-workload",
        "volcano",  # names that its controller generated
    ]
    names = [dialect.name for dialect in DIALECTS]
    assert names == [name for name in order if name in names]


@pytest.mark.parametrize(
    ("labels", "annotations", "gang_id"),
    [
        ({KOORDINATOR_LABEL: "k", LIGHTWEIGHT + "name": "l", COSCHEDULING: "c"}, {}, "koordinator/a/k"),
        ({LIGHTWEIGHT + "name": "l", COSCHEDULING: "c"}, {KOORDINATOR + "name": "k"}, "koordinator/a/k"),
        ({LIGHTWEIGHT + "name": "l", COSCHEDULING: "c"}, {}, "lightweight/a/l"),
        ({COSCHEDULING: "c"}, {}, "coscheduling/a/c"),
        ({COSCHEDULING: "c"}, {KOORDINATOR + "min-available": "3"}, "coscheduling/a/c"),
    ],
)
def test_the_first_matching_dialect_is_used(labels: dict[str, str], annotations: dict[str, str], gang_id: str) -> None:
    membership = membership_of(gang_marks("a", labels, annotations))
    assert membership is not None
    assert membership.gang_id == gang_id


def test_a_pod_without_marks_is_plain() -> None:
    marks = gang_marks("a", {"app": "web"}, {"note": "x"})
    assert not marks
    assert membership_of(marks) is None
    assert membership_of(gang_marks("a", None, None)) is None


@pytest.mark.parametrize(
    ("labels", "annotations", "words"),
    [
        ({}, {KOORDINATOR + "min-available": "3"}, "annotation gang.scheduling.koordinator.sh/name or label"),
        (
            {},
            {KOORDINATOR + "groups": "[]", KOORDINATOR + "mode": "Strict"},
            "groups, gang.scheduling.koordinator.sh/mode",
        ),
        ({LIGHTWEIGHT + "min-available": "3"}, {}, "label pod-group.scheduling.sigs.k8s.io/name"),
    ],
)
def test_marks_that_name_no_gang_are_the_pods_problem(
    labels: dict[str, str], annotations: dict[str, str], words: str
) -> None:
    membership = membership_of(gang_marks("a", labels, annotations))
    assert membership is not None
    assert membership.gang_id == ""
    assert "without the gang's name: add it" in membership.problem
    assert words in membership.problem


def test_marks_of_two_dialects_are_reported_once_per_dialect() -> None:
    pods = [
        marked(
            f"w-{i}",
            labels={LIGHTWEIGHT + "name": "l", COSCHEDULING: "c", "index": str(i)},
            annotations={KOORDINATOR + "name": "A", KOORDINATOR + "min-available": "2"},
            created_seconds=i,
        )
        for i in range(3)
    ]
    assert problems_of(read_gang("koordinator/a/A", None, pods)) == [
        (
            Severity.WARNING,
            'pod "w-0" also has marks of the dialect lightweight (pod-group.scheduling.sigs.k8s.io/name); only those '
            "of koordinator are used",
        ),
        (
            Severity.WARNING,
            'pod "w-0" also has marks of the dialect coscheduling (scheduling.x-k8s.io/pod-group); only those of '
            "koordinator are used",
        ),
    ]


def test_objects_define_gangs_of_their_dialect() -> None:
    def defined(api_version: str, kind: str) -> str | None:
        return defined_gang(Definition(api_version, kind, "a", "A"))

    assert defined("scheduling.sigs.k8s.io/v1alpha1", "PodGroup") == "koordinator/a/A"
    assert defined("scheduling.x-k8s.io/v1alpha1", "PodGroup") == "coscheduling/a/A"
    assert defined("scheduling.x-k8s.io/v1alpha1", "ElasticQuota") is None
    assert defined("v1", "PodGroup") is None


@pytest.mark.parametrize("gang_id", ["", "koordinator", "koordinator/a", "koordinator/a/", "other/a/A"])
def test_an_unknown_gang_id_raises(gang_id: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a gang"):
        read_gang(gang_id, None, [])


def test_only_marks_that_dialects_read_are_kept() -> None:
    one = gang_marks("a", {COSCHEDULING: "c", "pod-index": "1"}, {"big": "x" * 1_000_000})
    other = gang_marks("a", {"pod-index": "2", COSCHEDULING: "c"}, {})
    assert one == other == GangMarks("a", ((COSCHEDULING, "c"),))
    assert hash(one) == hash(other)
    assert one != gang_marks("b", {COSCHEDULING: "c"}, {})


def test_a_huge_value_is_truncated_in_marks_and_messages() -> None:
    marks = gang_marks("a", {}, {KOORDINATOR + "name": "A", KOORDINATOR + "groups": "[" + '"a/A",' * 200_000 + "]"})
    assert sum(len(value) for _, value in marks.annotations) <= 65536 + 1
    gang = read_gang("koordinator/a/A", None, [MarkSet(marks, PodAge(1, "w-0", "u"))])
    assert all(len(problem.message) < 400 for problem in gang.problems)


def test_the_longest_valid_gang_group_is_kept_whole() -> None:
    name = "n" * 253
    gangs = ",".join(f'"{"s" * 60}-{i:02}/{name}"' for i in range(99))
    gang = read_gang("koordinator/a/A", None, [koordinator_pod(min_available="1", groups=f'["a/A",{gangs}]')])
    assert gang.problems == ()
    assert len(gang.group) == 100


def test_pods_and_pod_groups_off_the_wire() -> None:
    worker = pod("w-3", metadata={"labels": {"app": "x"}, "annotations": {KOORDINATOR + "name": "A"}})
    assert marks_of_pod(worker) == gang_marks("ml", {}, {KOORDINATOR + "name": "A"})
    assert pod_age(worker) == PodAge(1769860800, "w-3", "uid-of-w-3")
    assert not marks_of_pod(pod(metadata={"labels": None, "annotations": None}))
    kind = DIALECTS[0].definition
    assert kind is not None
    group = decode_pod_group(
        b'{"metadata":{"name":"A","namespace":"a","uid":"u","creationTimestamp":"1970-01-01T00:00:07Z",'
        b'"annotations":{"k":"v"}},"spec":{"minMember":3,"scheduleTimeoutSeconds":1e999}}'
    )
    assert definition_of(group, kind) == Definition(
        kind.api_version,
        "PodGroup",
        "a",
        "A",
        "u",
        7,
        {"k": "v"},
        {},
        {"minMember": 3, "scheduleTimeoutSeconds": "1e999"},
    )
    assert definition_of(decode_pod_group(b'{"metadata":{"name":"A"},"spec":[]}'), kind).spec == {}


words = st.sampled_from(
    [
        "A",
        "3",
        "4",
        "five",
        "",
        "Strict",
        "NonStrict",
        "10m",
        '["a/A","b/B"]',
        '["b/B"]',
        "[",
        "x" * 300,
        "é",
        '[["a/A"]]',
    ]
)
keys = ["name", "min-available", "total-number", "mode", "waiting-time", "groups", "match-policy", "timeout"]
mark_sets = st.builds(
    lambda annotations, label, created, index: marked(
        f"w-{index}",
        labels={} if label is None else {KOORDINATOR_LABEL: "A", COSCHEDULING: label},
        annotations={KOORDINATOR + key: value for key, value in annotations.items()},
        created_seconds=created,
    ),
    st.dictionaries(st.sampled_from(keys), words, max_size=8),
    st.none() | words,
    st.integers(0, 3),
    st.integers(0, 9),
)
specs = st.dictionaries(
    st.sampled_from(["minMember", "scheduleTimeoutSeconds"]), words | st.integers() | st.none(), max_size=2
)


@given(
    pods=st.lists(mark_sets, max_size=5, unique_by=lambda each: each.oldest.name),
    spec=st.none() | specs,
    annotations=st.dictionaries(st.sampled_from([KOORDINATOR + key for key in keys]), words, max_size=4),
    seed=st.integers(0, 1000),
)
def test_facts_of_any_declaration_are_sound_in_any_order(
    pods: list[MarkSet], spec: dict[str, object] | None, annotations: dict[str, str], seed: int
) -> None:
    group = None if spec is None else replace(koordinator_group(spec), annotations=annotations)
    gang = read_gang("koordinator/a/A", group, pods)
    assert read_gang("koordinator/a/A", group, random.Random(seed).sample(pods, len(pods))) == gang
    assert gang.mode in GangMode
    assert gang.waiting_time_seconds > 0
    assert gang.blocked or 1 <= gang.minimum <= gang.total
    assert gang.minimum == 0 or gang.total >= gang.minimum
    assert gang.group == () or gang.id in gang.group
    assert list(gang.group) == sorted(set(gang.group))
    assert all(0 < len(problem.message) < 500 for problem in gang.problems)
    assert len(set(gang.problems)) == len(gang.problems)


@given(
    labels=st.dictionaries(
        st.sampled_from([KOORDINATOR_LABEL, LIGHTWEIGHT + "name", COSCHEDULING, "app"]), st.text(max_size=9)
    ),
    annotations=st.dictionaries(st.sampled_from([KOORDINATOR + key for key in keys]), st.text(max_size=9)),
)
def test_a_pod_is_a_member_or_has_a_problem_or_is_plain(labels: dict[str, str], annotations: dict[str, str]) -> None:
    marks = gang_marks("a", labels, annotations)
    membership = membership_of(marks)
    if membership is None:
        assert not marks
    else:
        assert bool(membership.gang_id) != bool(membership.problem)
        if membership.gang_id:
            assert read_gang(membership.gang_id, None, [MarkSet(marks, PodAge(1, "p", "u"))]).id == membership.gang_id
