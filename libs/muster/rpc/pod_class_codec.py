"""Pod classes as messages and back."""

import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import (
    Amounts,
    ExtendedRequest,
    HostPort,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    PodTerm,
    PreferredNodeTerm,
    PreferredPodTerm,
    SpreadConstraint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)

_OPERATORS: Final = {operator.value: operator for operator in NodeOperator}
_TOLERATIONS: Final = {operator.value: operator for operator in TolerationOperator}
EFFECTS: Final = {effect.value: effect for effect in TaintEffect}

_intern = sys.intern


def encode_pod_class(pod_class: PodClass) -> pb.PodClass:
    """A pod class as a message."""
    message = pb.PodClass(
        id=pod_class.id,
        requests=encode_amounts(pod_class.requests),
        node_selector=dict(pod_class.node_selector),
        preferred_node_affinity=[
            pb.PreferredNodeTerm(weight=wish.weight, term=_encode_term(wish.term))
            for wish in pod_class.preferred_node_affinity
        ],
        tolerations=[
            pb.Toleration(key=t.key, operator=number(t.operator), value=t.value, effect=number(t.effect))
            for t in pod_class.tolerations
        ],
        required_pod_affinity=map(_encode_pod_term, pod_class.required_pod_affinity),
        required_pod_anti_affinity=map(_encode_pod_term, pod_class.required_pod_anti_affinity),
        preferred_pod_affinity=[
            pb.PreferredPodTerm(weight=wish.weight, term=_encode_pod_term(wish.term))
            for wish in pod_class.preferred_pod_affinity
        ],
        spread=map(_encode_spread, pod_class.spread),
        host_ports=[pb.HostPort(protocol=port.protocol, ip=port.ip, port=port.port) for port in pod_class.host_ports],
        volumes=map(encode_required, pod_class.volumes),
        extended=[
            pb.ExtendedRequest(
                container=each.container,
                resource=each.resource,
                request=each.request,
                index=each.index,
                amount=each.amount,
                starts=each.starts,
            )
            for each in pod_class.extended
        ],
        shared_claims=map(_encode_pod_term, pod_class.shared_claims),
    )
    if pod_class.required_node_affinity is not None:
        message.required_node_affinity.SetInParent()
        message.required_node_affinity.terms.extend(map(_encode_term, pod_class.required_node_affinity))
    return message


def decode_pod_class(message: pb.PodClass) -> PodClass:
    """The pod class that a message carries; its selector sorted by key."""
    required = None
    if message.HasField("required_node_affinity"):
        required = tuple(map(_decode_term, message.required_node_affinity.terms))
    return PodClass(
        _intern(message.id),
        decode_amounts(message.requests),
        tuple(sorted(message.node_selector.items())),
        required,
        tuple(PreferredNodeTerm(wish.weight, _decode_term(wish.term)) for wish in message.preferred_node_affinity),
        tuple(
            Toleration(
                t.key,
                _TOLERATIONS.get(t.operator, TolerationOperator.EQUAL),
                t.value,
                EFFECTS.get(t.effect, TaintEffect.NONE),
            )
            for t in message.tolerations
        ),
        tuple(map(_decode_pod_term, message.required_pod_affinity)),
        tuple(map(_decode_pod_term, message.required_pod_anti_affinity)),
        tuple(PreferredPodTerm(wish.weight, _decode_pod_term(wish.term)) for wish in message.preferred_pod_affinity),
        tuple(map(_decode_spread, message.spread)),
        tuple(HostPort(_intern(port.protocol), _intern(port.ip), port.port) for port in message.host_ports),
        tuple(map(decode_required, message.volumes)),
        extended=tuple(
            ExtendedRequest(each.container, _intern(each.resource), each.request, each.index, each.amount, each.starts)
            for each in message.extended
        ),
        shared_claims=tuple(map(_decode_pod_term, message.shared_claims)),
    )


def _encode_term(term: NodeSelectorTerm) -> pb.NodeSelectorTerm:
    return pb.NodeSelectorTerm(
        labels=map(_encode_requirement, term.labels), fields=map(_encode_requirement, term.fields)
    )


def _decode_term(message: pb.NodeSelectorTerm) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(map(_decode_requirement, message.labels)), tuple(map(_decode_requirement, message.fields))
    )


def _encode_requirement(requirement: NodeRequirement) -> pb.NodeRequirement:
    return pb.NodeRequirement(key=requirement.key, operator=number(requirement.operator), values=requirement.values)


def _decode_requirement(message: pb.NodeRequirement) -> NodeRequirement:
    operator = _OPERATORS.get(message.operator)
    if operator is None:  # unknown, so no node may match: no value is in an empty list
        return NodeRequirement(message.key, NodeOperator.IN, ())
    return NodeRequirement(message.key, operator, tuple(message.values))


def encode_required(terms: Sequence[NodeSelectorTerm]) -> pb.RequiredNodeAffinity:
    """Terms of which one must match as a message."""
    return pb.RequiredNodeAffinity(terms=map(_encode_term, terms))


def decode_required(message: pb.RequiredNodeAffinity) -> tuple[NodeSelectorTerm, ...]:
    """Terms of which one must match."""
    return tuple(map(_decode_term, message.terms))


def _encode_pod_term(term: PodTerm) -> pb.PodTerm:
    return pb.PodTerm(selector=term.selector, topology_key=term.topology_key)


def _decode_pod_term(message: pb.PodTerm) -> PodTerm:
    return PodTerm(_intern(message.selector), _intern(message.topology_key))


def _encode_spread(spread: SpreadConstraint) -> pb.SpreadConstraint:
    return pb.SpreadConstraint(
        max_skew=spread.max_skew,
        topology_key=spread.topology_key,
        selector=spread.selector,
        hard=spread.hard,
        min_domains=spread.min_domains,
        ignores_node_affinity=spread.ignores_node_affinity,
        honors_taints=spread.honors_taints,
    )


def _decode_spread(message: pb.SpreadConstraint) -> SpreadConstraint:
    return SpreadConstraint(
        max(1, message.max_skew),
        _intern(message.topology_key),
        _intern(message.selector),
        message.hard,
        max(1, message.min_domains),
        message.ignores_node_affinity,
        message.honors_taints,
    )


def encode_amounts(amounts: Amounts) -> list[pb.ResourceAmount]:
    """Amounts as messages."""
    return [pb.ResourceAmount(name=name, amount=amount) for name, amount in amounts]


def decode_amounts(messages: Sequence[pb.ResourceAmount]) -> Amounts:
    """The amounts that messages carry."""
    return tuple((_intern(message.name), message.amount) for message in messages)


def number(value: IntEnum) -> Any:
    """An enum as the generated types accept it; test_enums compares the numbers."""
    return value
