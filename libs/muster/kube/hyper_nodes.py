"""Reads Volcano's HyperNodes; a malformed one becomes a HyperNode with a problem."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from muster.dialects.values import quoted_value
from muster.gangs.facts import ObjectReference
from muster.gangs.quoting import quoted
from muster.kube.json_repair import shallow
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, ObjectMeta, salvage
from muster.kube.selectors import BadSelector, label_selector
from muster.topology.hyper_nodes import (
    MAX_MEMBERS,
    MAX_TIER,
    BadPattern,
    HyperNode,
    MemberSelector,
    compile_pattern,
)

API_VERSION: Final = "topology.volcano.sh/v1alpha1"

_TYPES: Final = {"Node": True, "HyperNode": False}
_KINDS: Final = ("exactMatch", "regexMatch", "labelMatch")


class HyperNodeObject(Struct, rename="camel", frozen=True, gc=False):
    """A HyperNode as the API serves it."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Raw = NOTHING


_hyper_node: Final = msgspec.json.Decoder(HyperNodeObject)


class _Malformed(ValueError):
    """A field with a value that is not allowed."""


def decode_hyper_node(data: Encoded) -> HyperNodeObject:
    """Decode a HyperNode. Raises BadObject if it is not a JSON object."""
    try:
        return _hyper_node.decode(data)
    except UNREADABLE:
        return HyperNodeObject(**salvage(HyperNodeObject, data)[0])


def read_hyper_node(given: HyperNodeObject) -> HyperNode:
    """The HyperNode, or one with a problem that quotes what is malformed."""
    metadata = given.metadata
    name = metadata.name
    reference = ObjectReference(API_VERSION, "HyperNode", "", name, metadata.uid)
    try:
        spec = msgspec.json.decode(shallow(bytes(given.spec)), type=dict[str, Any]) if bytes(given.spec) else {}
        tier, tier_name, members = spec.get("tier", 0), spec.get("tierName") or "", spec.get("members") or []
        if isinstance(tier, bool) or not isinstance(tier, int) or not 0 <= tier <= MAX_TIER:
            raise _Malformed(f"spec.tier is {quoted_value(tier)}, but it must be a number from 0 to {MAX_TIER}")
        if not isinstance(tier_name, str):
            raise _Malformed(f"spec.tierName is {quoted_value(tier_name)}, which is not a text")
        if not isinstance(members, list) or len(members) > MAX_MEMBERS:
            raise _Malformed(f"spec.members must be a list of at most {MAX_MEMBERS} members")
        selectors = tuple(_member(at, each) for at, each in enumerate(members))
    except UNREADABLE as error:
        return HyperNode(name, reference, problem=f"HyperNode {quoted(name)} has a spec that cannot be read: {error}")
    except _Malformed as error:
        return HyperNode(name, reference, problem=f"HyperNode {quoted(name)}: {error}")
    return HyperNode(name, reference, tier, tier_name, selectors)


def _member(at: int, member: Any) -> MemberSelector:
    where = f"spec.members[{at}]"
    if not isinstance(member, dict):
        raise _Malformed(f"{where} is {quoted_value(member)}, which is not an object")
    type_, selector = member.get("type"), member.get("selector")
    of_nodes = _TYPES.get(type_) if isinstance(type_, str) else None
    if of_nodes is None:
        raise _Malformed(f"{where}.type is {quoted_value(type_)}, which is neither Node nor HyperNode")
    kinds = [kind for kind in _KINDS if isinstance(selector, dict) and selector.get(kind) is not None]
    if len(kinds) != 1 or not isinstance(selector, dict):
        allowed = "exactMatch, regexMatch and labelMatch"
        raise _Malformed(f"{where}.selector is {quoted_value(selector)}, but it must have exactly one of {allowed}")
    [kind] = kinds
    content = selector[kind]
    if not isinstance(content, dict):
        raise _Malformed(f"{where}.selector.{kind} is {quoted_value(content)}, which is not an object")
    if kind == "labelMatch":
        return _by_labels(f"{where}.selector.{kind}", content, of_nodes=of_nodes)
    key = "name" if kind == "exactMatch" else "pattern"
    text = content.get(key)
    if not isinstance(text, str) or not text:
        raise _Malformed(f"{where}.selector.{kind}.{key} is {quoted_value(text)}, but it must be a text")
    if kind == "exactMatch":
        return MemberSelector(of_nodes, name=text)
    try:
        compile_pattern(text)
    except BadPattern as error:
        raise _Malformed(f"{where}.selector.{kind}.{key} is {error}") from None
    return MemberSelector(of_nodes, pattern=text)


def _by_labels(where: str, content: dict[str, Any], *, of_nodes: bool) -> MemberSelector:
    if not of_nodes:
        raise _Malformed(f"{where} is given for a HyperNode, but only nodes are selected by labels: use exactMatch")
    try:
        selector = label_selector(msgspec.json.encode(content))
    except BadSelector as error:
        raise _Malformed(f"{where} is {error}") from None
    if not selector.requirements:
        raise _Malformed(f"{where} is {quoted_value(content)}, but it must have a requirement")
    return MemberSelector(of_nodes, labels=selector)
