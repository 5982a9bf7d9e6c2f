"""Pod selectors, label sets and namespaces as messages and back."""

import sys
from typing import Any, Final

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.byte_cache import cached_by_number
from muster.gangs.selectors import (
    NOTHING_SELECTED,
    LabelSelector,
    LabelSet,
    NamespaceFacts,
    Operator,
    PodSelector,
    Requirement,
)

_OPERATORS: Final = {operator.value: operator for operator in Operator}

_intern = sys.intern


def encode_selector(selector: PodSelector) -> pb.PodSelector:
    """A pod selector as a message."""
    message = pb.PodSelector(id=selector.id, namespaces=selector.namespaces)
    if selector.namespace_labels.requirements is not None:
        fill_labels(message.namespace_selector, selector.namespace_labels)
    if selector.labels.requirements is not None:
        fill_labels(message.label_selector, selector.labels)
    return message


def decode_selector(message: pb.PodSelector) -> PodSelector:
    """The pod selector that a message carries."""
    return PodSelector(
        _intern(message.id),
        tuple(map(_intern, message.namespaces)),
        decode_labels(message.namespace_selector) if message.HasField("namespace_selector") else NOTHING_SELECTED,
        decode_labels(message.label_selector) if message.HasField("label_selector") else NOTHING_SELECTED,
    )


def encode_label_set(label_set: LabelSet) -> pb.LabelSet:
    """A label set as a message."""
    return pb.LabelSet(id=label_set.id, namespace=label_set.namespace, keys=label_set.keys, values=label_set.values)


def decode_label_set(message: pb.LabelSet) -> LabelSet:
    """The label set that a message carries."""
    keys = _shared_keys(tuple(map(_intern, message.keys)))
    return LabelSet(_intern(message.id), _intern(message.namespace), keys, tuple(map(_intern, message.values)))


@cached_by_number(1024)
def _shared_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """One object for all label sets with these keys."""
    return keys


def encode_namespace(namespace: NamespaceFacts) -> pb.Namespace:
    """A namespace as a message."""
    return pb.Namespace(name=namespace.name, labels=namespace.labels)


def decode_namespace(message: pb.Namespace) -> NamespaceFacts:
    """The namespace that a message carries."""
    return NamespaceFacts(_intern(message.name), dict(message.labels))


def fill_labels(message: pb.LabelSelector, selector: LabelSelector) -> None:
    """Write a label selector into an empty message."""
    message.SetInParent()
    for each in selector.requirements or ():
        operator: Any = each.operator
        message.requirements.add(key=each.key, operator=operator, values=each.values)


def decode_labels(message: pb.LabelSelector) -> LabelSelector:
    """The label selector that a message carries."""
    return LabelSelector(tuple(map(_decode_requirement, message.requirements)))


def _decode_requirement(message: pb.LabelRequirement) -> Requirement:
    operator = _OPERATORS.get(message.operator)
    if operator is None:  # unknown: met by no labels, because no value is in an empty list
        return Requirement(_intern(message.key), Operator.IN, ())
    return Requirement(_intern(message.key), operator, tuple(message.values))
