"""Label sets and selectors of the cases, named by what they contain.

- Label sets: "a" has a label "a", "a+b" has two, "a=x" has the value x; "dev/a" is in the namespace dev.
- Selectors: "a" selects pods with a label "a", "!a" those without, "a=x|y" and "a!=x|y" compare values, "a&!b" has two
  requirements. They select pods of all namespaces; "a@dev" only of dev, "a@~live" of namespaces with the label live.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from muster.gangs.facts import Batch, PodClass
from muster.gangs.selectors import (
    EVERYTHING_SELECTED,
    NOTHING_SELECTED,
    LabelSelector,
    LabelSet,
    NamespaceFacts,
    Operator,
    PodSelector,
    Requirement,
)

NAMESPACE: Final = "default"
NAMESPACES: Final = {"dev": {"test": "yes"}, "prod": {"live": "yes"}}
"""Labels of the namespaces that have any."""
_VALUE: Final = "yes"


def labelled(*names: str) -> str:
    """Id of the label set with these labels; empty without any."""
    return "+".join(sorted(names))


def namespace_of(label_set: str) -> str:
    """The namespace of pods with a label set."""
    return _label_set(label_set).namespace if label_set else NAMESPACE


@lru_cache
def selects(selector: str, label_set: str) -> bool:
    """The selector of that name selects pods with the label set."""
    if not label_set:
        return False
    found = _label_set(label_set)
    return _selector(selector).selects(found.namespace, NAMESPACES.get(found.namespace, {}), found.labels)


def with_labels(batch: Batch) -> Batch:
    """The batch, with the selectors and label sets of its classes."""
    selectors = sorted({name for each in batch.pod_classes for name in _named(each)})
    label_sets = sorted({each.label_set for each in batch.pod_classes if each.label_set})
    if not selectors and not label_sets:
        return batch
    return replace(
        batch,
        selectors=(*batch.selectors, *map(_selector, selectors)),
        label_sets=(*batch.label_sets, *map(_label_set, label_sets)),
        namespaces=tuple(NamespaceFacts(*each) for each in NAMESPACES.items()),
    )


def _named(pod_class: PodClass) -> Iterable[str]:
    """Selectors that the class names."""
    yield from (term.selector for term in pod_class.required_pod_affinity)
    yield from (term.selector for term in pod_class.required_pod_anti_affinity)
    yield from (preferred.term.selector for preferred in pod_class.preferred_pod_affinity)
    yield from (spread.selector for spread in pod_class.spread)


@lru_cache
def _selector(name: str) -> PodSelector:
    content, _, where = name.partition("@")
    labels = LabelSelector(tuple(map(_requirement, content.split("&"))))
    if not where:
        return PodSelector(name, (), EVERYTHING_SELECTED, labels)
    if where.startswith("~"):
        return PodSelector(name, (), LabelSelector((Requirement(where[1:], Operator.EXISTS),)), labels)
    return PodSelector(name, (where,), NOTHING_SELECTED, labels)


def _requirement(text: str) -> Requirement:
    key, equal, values = text.partition("=")
    if equal:
        operator = Operator.NOT_IN if key.endswith("!") else Operator.IN
        return Requirement(key.removesuffix("!"), operator, tuple(sorted(values.split("|"))))
    return Requirement(key.removeprefix("!"), Operator.DOES_NOT_EXIST if key.startswith("!") else Operator.EXISTS)


@lru_cache
def _label_set(id_: str) -> LabelSet:
    namespace, slash, content = id_.rpartition("/")
    pairs = sorted((key, value or _VALUE) for key, _, value in (each.partition("=") for each in content.split("+")))
    return LabelSet(
        id_, namespace if slash else NAMESPACE, tuple(key for key, _ in pairs), tuple(value for _, value in pairs)
    )
