"""Slices of Kueue's pod sets: equal parts of the pods, each of them in one domain of a node label.

Kueue's topology-aware scheduling chooses the domains, and writes them into the pods as node selectors. Where it has
not, Muster keeps the slices together: each domain gets a multiple of a slice's size. If the pods of a gang differ in
what they ask for, each pod set is a subgroup, by the label that Kueue writes on the pods that it admits. Of a plain pod
group its value is the role hash.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from muster.dialects.marks import GangMarks, MarkSet, Pairs
from muster.dialects.sources import blocking, choose, from_pods, warning
from muster.dialects.topology_keys import parse_label_key
from muster.dialects.values import parse_count
from muster.gangs.facts import LevelConstraint, LevelPolicy, Problem, SubgroupPolicy
from muster.gangs.json_text import BadJson, decode_json
from muster.gangs.quoting import quoted
from muster.gangs.selectors import EVERYTHING_SELECTED, Operator, Requirement
from muster.topology.trees import label_key_tree_name

_PREFIX: Final = "kueue.x-k8s.io/"
TOPOLOGY: Final = _PREFIX + "podset-slice-required-topology"
"""Annotation of a pod: the node label of the domains."""
SIZE: Final = _PREFIX + "podset-slice-size"
LAYERS: Final = _PREFIX + "podset-slice-required-topology-constraints"
"""Annotation of a pod: slices of slices, as JSON."""
POD_SET: Final = _PREFIX + "podset"
"""Label that Kueue writes on pods that it admits: the name of their pod set."""
_ANNOTATIONS: Final = frozenset({TOPOLOGY, SIZE, LAYERS})
MARKS: Final = _ANNOTATIONS | {POD_SET}

MAX_POD_SETS: Final = 20
"""Of one gang, with slices."""

_HOSTNAME: Final = "kubernetes.io/hostname"


class Slices(NamedTuple):
    """Topology constraints of a gang, or subgroups with constraints of their own."""

    tree: str = ""
    constraints: tuple[LevelConstraint, ...] = ()
    subgroups: tuple[SubgroupPolicy, ...] = ()


class _Request(NamedTuple):
    key: str
    size: int

    @property
    def constraints(self) -> tuple[LevelConstraint, ...]:
        return (LevelConstraint(self.key, LevelPolicy.FACTOR, hard=True, count=self.size),)


def asks(annotations: Pairs) -> bool:
    """Returns whether a pod asks for slices."""
    return any(key in _ANNOTATIONS for key, _ in annotations)


def relevant_labels(labels: Pairs, annotations: Pairs) -> Pairs:
    """Returns the labels without the pod set, unless the pod asks for slices: no other rule depends on it."""
    return labels if asks(annotations) else tuple([pair for pair in labels if pair[0] != POD_SET])


def unless_placed(marks: GangMarks, gates: Collection[str], selected: Collection[str]) -> GangMarks:
    """Returns the marks, without those of slices if Kueue chose the domain, or still holds the pod and may choose one.
    `gates`: scheduling gates of the pod; `selected`: labels that its node selector names.
    """
    held = any(each.startswith(_PREFIX) for each in gates)
    keys = (_HOSTNAME, marks.annotation(TOPOLOGY), *_keys_of_layers(marks.annotation(LAYERS)))
    if not (held or any(each in selected for each in keys)):
        return marks
    others = tuple([pair for pair in marks.annotations if pair[0] not in _ANNOTATIONS])
    return replace(marks, labels=relevant_labels(marks.labels, others), annotations=others)


def _keys_of_layers(text: str | None) -> list[str]:
    try:
        layers = decode_json(text) if text else None
    except BadJson:
        return []
    keys = [each.get("topology") for each in layers if isinstance(each, dict)] if isinstance(layers, list) else []
    return [each for each in keys if isinstance(each, str)]


def read_slices(pods: Sequence[MarkSet], problems: list[Problem]) -> Slices:
    """Reads the slices that the pods ask for, and adds problems. `pods` are ordered by their oldest pods."""
    by_pod_set: dict[str, list[MarkSet]] = {}
    for each in pods:
        if each.marks.annotation(TOPOLOGY) is not None:
            by_pod_set.setdefault(each.marks.label(POD_SET) or "", []).append(each)
    problems += _without_effect(pods)
    if len(by_pod_set) > MAX_POD_SETS:
        many = f"its pods ask for slices of {len(by_pod_set)} pod sets (label {POD_SET})"
        problems.append(blocking(f"{many}: at most {MAX_POD_SETS} are supported; make fewer"))
        return Slices()
    requests = {name: _request(asking, problems) for name, asking in by_pod_set.items()}
    found = {name: request for name, request in requests.items() if request is not None}
    if not found:
        return Slices()
    if len(by_pod_set) == 1 and all(each.marks.annotation(TOPOLOGY) is not None for each in pods):
        [request] = found.values()
        return Slices(label_key_tree_name(request.key), request.constraints)
    if "" in found:
        first = quoted(by_pod_set[""][0].oldest.name)
        pod = f"pod {first} has the annotation {TOPOLOGY} without effect"
        apart = f"other pods of the gang differ in it, and no label {POD_SET} tells them apart"
        problems.append(warning(f"{pod}: {apart}; use muster.dev/topology"))
        del found[""]
    return Slices(subgroups=tuple(_subgroup(name, found[name]) for name in sorted(found)))


def _request(asking: Sequence[MarkSet], problems: list[Problem]) -> _Request | None:
    """Returns the slices of one pod set; None with a problem that blocks the gang if they are invalid."""
    topologies, differences = from_pods(asking, GangMarks.annotation, TOPOLOGY, f"annotation {TOPOLOGY}")
    sizes, others = from_pods(asking, GangMarks.annotation, SIZE, f"annotation {SIZE}")
    problems += (*differences, *others)
    if not sizes:
        pod = f"pod {quoted(asking[0].oldest.name)} has the annotation {TOPOLOGY} without {SIZE}"
        problems.append(blocking(f"{pod}: set it to the number of pods of a slice"))
        return None
    key = choose(topologies, parse_label_key, "", problems, blocking, "recreate the pods with the key of a node label")
    size = choose(sizes, parse_count, 0, problems, blocking, "set it to the number of pods of a slice")
    return _Request(key, size) if key and size else None


def _without_effect(pods: Sequence[MarkSet]) -> list[Problem]:
    """Warnings about the oldest pods that have only a part of the annotations, or those of layers."""
    problems = []
    layered = next((each for each in pods if each.marks.annotation(LAYERS) is not None), None)
    if layered is not None:
        pod = f"pod {quoted(layered.oldest.name)} has the annotation {LAYERS}"
        alone = "only Kueue's topology-aware scheduling reads it, and has chosen no domain for the pod"
        problems.append(warning(f"{pod} without effect: {alone}; use {TOPOLOGY} or muster.dev/topology"))
    sized = next((each for each in pods if each.marks.annotation(SIZE) is not None and not _has_topology(each)), None)
    if sized is not None:
        pod = f"pod {quoted(sized.oldest.name)} has the annotation {SIZE}"
        problems.append(warning(f"{pod} without effect: it belongs to {TOPOLOGY}, which the pod lacks"))
    return problems


def _has_topology(each: MarkSet) -> bool:
    return any(each.marks.annotation(key) is not None for key in (TOPOLOGY, LAYERS))


def _subgroup(pod_set: str, request: _Request) -> SubgroupPolicy:
    labels = EVERYTHING_SELECTED.narrowed([Requirement(POD_SET, Operator.IN, (pod_set,))])
    tree = label_key_tree_name(request.key)
    return SubgroupPolicy(f"pod set {pod_set}", labels, (), request.size, 1, tree, request.constraints)
