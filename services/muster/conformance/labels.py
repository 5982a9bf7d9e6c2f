"""Label sets and selectors of cases: selector "a" selects pods with a label "a", label set "a+b" has both labels."""

from collections.abc import Iterable

from msgspec.structs import replace

from muster.gangs.facts import Batch, PodClass
from muster.gangs.selectors import EVERYTHING_SELECTED, LabelSelector, LabelSet, Operator, PodSelector, Requirement

NAMESPACE = "default"


def labelled(*names: str) -> str:
    """Id of the label set with these labels; empty without any."""
    return "+".join(sorted(names))


def selects(selector: str, label_set: str) -> bool:
    """The selector of that name selects pods with the label set."""
    return selector in label_set.split("+")


def selectors_of(classes: Iterable[PodClass]) -> tuple[PodSelector, ...]:
    """The selectors that classes name."""
    names: set[str] = set()
    for each in classes:
        names.update(term.selector for term in (*each.required_pod_affinity, *each.required_pod_anti_affinity))
        names.update(preferred.term.selector for preferred in each.preferred_pod_affinity)
        names.update(spread.selector for spread in each.spread)
    return tuple(map(_selector, sorted(names)))


def label_sets_of(classes: Iterable[PodClass]) -> tuple[LabelSet, ...]:
    """The label sets of members of these classes."""
    return tuple(map(_label_set, sorted({each.label_set for each in classes if each.label_set})))


def with_labels(batch: Batch) -> Batch:
    """The batch, with the selectors and label sets of its classes."""
    classes = batch.pod_classes
    return replace(
        batch,
        selectors=(*batch.selectors, *selectors_of(classes)),
        label_sets=(*batch.label_sets, *label_sets_of(classes)),
    )


def _selector(name: str) -> PodSelector:
    return PodSelector(name, (), EVERYTHING_SELECTED, LabelSelector((Requirement(name, Operator.EXISTS),)))


def _label_set(id_: str) -> LabelSet:
    names = tuple(id_.split("+"))
    return LabelSet(id_, NAMESPACE, names, ("yes",) * len(names))
