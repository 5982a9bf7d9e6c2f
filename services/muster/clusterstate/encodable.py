"""Facts that cannot be encoded, such as a number beyond the range of its field: finds them, and what is sent instead.

No known content of an object leads to such facts: they are a defect, which must concern the object alone. Where part of
the facts can be sent, it is, with numbers cut to the range of their field: what a bound pod requests still counts on
its node. But nothing is decided by half of an object: its pod or gang waits, and its event says why.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import (
    Batch,
    DisruptionBudget,
    GangFacts,
    NodeFacts,
    PodClass,
    PodFacts,
    Problem,
    Severity,
    TopologyTree,
)
from muster.gangs.selectors import NOTHING_SELECTED, LabelSet, NamespaceFacts, PodSelector
from muster.rpc.pod_class_codec import encode_pod_class
from muster.rpc.selector_codec import encode_label_set, encode_namespace, encode_selector
from muster.rpc.static_volume_codec import encode_static_claim, encode_static_volume
from muster.rpc.watch_codec import (
    encode_budget,
    encode_device_object,
    encode_gang,
    encode_node,
    encode_pod,
    encode_topology_tree,
)

POD_CLASSES: Final = "pod_classes"
SELECTORS: Final = "pod_selectors"
"""Kinds of facts, as metrics call them."""

_MAX_MESSAGE: Final = 200
_MAX_REASONS: Final = 3


class NotEncoded(Struct, frozen=True):
    """Facts that cannot be encoded: kind, id or name, why, and what becomes of them."""

    kind: str
    id: str
    message: str
    effect: str
    error: Exception
    namespace: str = ""
    name: str = ""

    @property
    def problem(self) -> str:
        """For the events of pods and gangs that wait because of it."""
        return f"cannot be sent to the scheduler ({self.message}): change that, and report this defect of Muster"


_Encode = Callable[[Any], object]
_Less = Callable[[Any], Any]


class _Kind(NamedTuple):
    """`blank`: facts of the same id without content; None: they are left out of the stream, and subscribers keep what
    they know. `in_part`: other fields that can be encoded are sent, too.
    """

    field: str
    name: str
    id: str
    encode: _Encode
    effect: str
    blank: _Less | None = None
    in_part: bool = False


_KINDS: Final = (
    _Kind(
        POD_CLASSES,
        POD_CLASSES,
        "id",
        encode_pod_class,
        "its pods wait; those that are bound use what could be sent of their requests",
        lambda each: PodClass(each.id, requests=()),
        in_part=True,
    ),
    _Kind(
        "selectors",
        SELECTORS,
        "id",
        encode_selector,
        "it selects nothing, and pods that name it wait",
        lambda each: PodSelector(each.id, (), NOTHING_SELECTED, NOTHING_SELECTED),
    ),
    _Kind(
        "label_sets",
        "label_sets",
        "id",
        encode_label_set,
        "its pods count as unlabelled",
        lambda each: LabelSet(each.id, each.namespace, (), ()),
    ),
    _Kind(
        "namespaces",
        "namespaces",
        "name",
        encode_namespace,
        "it counts as unlabelled",
        lambda each: NamespaceFacts(each.name, {}),
    ),
    _Kind(
        "nodes",
        "nodes",
        "name",
        encode_node,
        "it counts as unschedulable",
        lambda each: NodeFacts(each.name),
        in_part=True,
    ),
    _Kind(
        "trees",
        "trees",
        "name",
        encode_topology_tree,
        "gangs that name it wait",
        lambda each: TopologyTree(each.name, default=bool(each.default)),
    ),
    _Kind(
        "gangs",
        "gangs",
        "id",
        encode_gang,
        "the gang waits",
        lambda each: GangFacts(each.id, each.dialect, each.namespace, each.name),
        in_part=True,
    ),
    _Kind(
        "budgets",
        "budgets",
        "id",
        encode_budget,
        "it allows no disruption",
        lambda each: DisruptionBudget(each.id, 0),
    ),
    _Kind(
        "pods",
        "pods",
        "uid",
        encode_pod,
        "the pod waits",
        lambda each: PodFacts(each.uid, each.namespace, each.name, each.class_id),
        in_part=True,
    ),
    _Kind("static_volumes", "static_volumes", "name", encode_static_volume, "it is left out"),
    _Kind("static_claims", "static_claims", "id", encode_static_claim, "it is left out"),
    _Kind("device_objects", "device_objects", "name", encode_device_object, "it is left out"),
)
_REMOVED: Final = tuple(name for name in Batch.__struct_fields__ if name.startswith("removed_"))
_REVISIONS: Final = ("changed", "through")


def encodable(batch: Batch) -> tuple[Batch, list[NotEncoded]]:
    """What can be encoded of a batch, and what cannot. For batches that cannot be encoded: it takes far longer."""
    found: list[NotEncoded] = []
    parts: dict[str, Any] = {kind.field: tuple(_sent(kind, getattr(batch, kind.field), found)) for kind in _KINDS}
    for field in _REMOVED:
        parts[field] = tuple(name for name in getattr(batch, field) if _error(_encode_removed, name) is None)
    for field in _REVISIONS:
        parts[field] = encodable_revisions(getattr(batch, field))
    return Batch(**parts), found


def encodable_revisions(kinds: dict[str, int]) -> dict[str, int]:
    """The revisions that can be encoded."""
    return {kind: each for kind, each in kinds.items() if _error(_encode_revision, (kind, each)) is None}


def _sent(kind: _Kind, objects: Iterable[Any], found: list[NotEncoded]) -> Iterator[Any]:
    for each in objects:
        error = _error(kind.encode, each)
        if error is None:
            yield each
            continue
        sent, why = _less(kind, each, error)
        not_encoded = NotEncoded(
            kind.name,
            getattr(each, kind.id),
            why,
            kind.effect if sent is not None else "it is left out",
            error,
            getattr(each, "namespace", ""),
            getattr(each, "name", ""),
        )
        found.append(not_encoded)
        if sent is not None:
            yield _blocked(sent, not_encoded.problem)


def _less(kind: _Kind, facts: Any, error: Exception) -> tuple[Any, str]:
    """Facts that are sent instead, None if there are none, and why."""
    why = _text(error)
    sent = None if kind.blank is None else kind.blank(facts)
    if sent is None or _error(kind.encode, sent) is not None:
        return None, why
    if kind.in_part:
        reasons = []
        for name in facts.__struct_fields__:
            value = getattr(facts, name)

            def fails(value: Any, name: str = name, sent: Any = sent) -> Exception | None:
                return _error(kind.encode, replace(sent, **{name: value}))

            if (of_field := fails(value)) is not None:
                reasons.append(f"{name}: {_text(of_field)}")
                value = _part(value, fails)
                if value is None or fails(value) is not None:
                    continue
            sent = replace(sent, **{name: value})
        why = "; ".join(reasons[:_MAX_REASONS]) or why
    return sent, why


def _part(value: Any, fails: Callable[[Any], Exception | None]) -> Any:
    """What can be encoded of the value of a field; None: nothing."""
    if isinstance(value, int):
        return next((each for each in _cut(value) if fails(each) is None), None)
    if isinstance(value, tuple):
        entries = (next((one for one in _entries(each) if fails((one,)) is None), None) for each in value)
        return tuple([each for each in entries if each is not None])
    if isinstance(value, dict):
        return {key: each for key, each in value.items() if fails({key: each}) is None}
    return None


def _entries(entry: Any) -> Iterator[Any]:
    """An entry of a list, or, of an amount, one that is cut to the range of its field."""
    yield entry
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], int):
        yield from ((entry[0], each) for each in _cut(entry[1]))


def _cut(number: int) -> Iterator[int]:
    for bits in (64, 63, 31):
        most = 2**bits - 1
        yield max(-most - 1, min(number, most))
    yield 0


def _blocked(facts: Any, problem: str) -> Any:
    """The facts so that nothing is decided by half of an object."""
    match facts:
        case PodClass():
            return replace(facts, required_node_affinity=())
        case NodeFacts():
            return replace(facts, unschedulable=True)
        case PodFacts():
            own = f"the pod {problem}"
            return replace(facts, problem=f"{facts.problem}; {own}" if facts.problem else own)
        case GangFacts():
            return replace(facts, problems=(*facts.problems, Problem(Severity.BLOCKING, f"its declaration {problem}")))
        case TopologyTree():
            return replace(facts, problems=(Problem(Severity.BLOCKING, f"the tree {problem}"),))
    return facts


def _error(encode: _Encode, facts: Any) -> Exception | None:
    try:
        encode(facts)
    except Exception as error:
        return error
    return None


def _encode_removed(name: str) -> object:
    return pb.Batch(removed_pods=[name])


def _encode_revision(entry: tuple[str, int]) -> object:
    return pb.Revision(kinds=dict([entry]))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_MESSAGE].encode(errors="replace").decode()
