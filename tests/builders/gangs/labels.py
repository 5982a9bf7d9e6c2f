"""Label sets and selectors of tests: the selector "a" selects pods with a label "a", the label set "a+b" has both, and
"a:1" has the label with a value.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.gangs.facts import Batch, PodClass
from muster.gangs.selectors import EVERYTHING_SELECTED, LabelSelector, LabelSet, Operator, PodSelector, Requirement


def labelled(*names: str) -> str:
    """Id of the label set with these labels."""
    return "+".join(sorted(names))


def selects(selector: str, label_set: str) -> bool:
    return selector in label_set.split("+")


def selector_of(name: str) -> PodSelector:
    labels = LabelSelector((Requirement(name, Operator.EXISTS),))
    return PodSelector(name, (), EVERYTHING_SELECTED, labels)


def label_set_of(id_: str) -> LabelSet:
    labels = [each.partition(":") for each in id_.split("+")]
    return LabelSet(id_, "default", tuple(key for key, _, _ in labels), tuple(value for _, _, value in labels))


def with_labels(batch: Batch, known: Mapping[str, PodClass]) -> Batch:
    """The batch with the selectors and label sets of its classes; pods have the label set of their class."""
    classes = {**known, **{each.id: each for each in batch.pod_classes}}
    label_sets = {each.label_set for each in batch.pod_classes if each.label_set}
    pods = (
        replace(pod, label_set=classes[pod.class_id].label_set)
        if pod.class_id in classes and not pod.label_set
        else pod
        for pod in batch.pods
    )
    return replace(
        batch,
        selectors=(*batch.selectors, *map(selector_of, sorted(set(_named(batch.pod_classes))))),
        label_sets=(*batch.label_sets, *map(label_set_of, sorted(label_sets))),
        pods=tuple(pods),
    )


def selectors_named(classes: Iterable[PodClass]) -> list[PodSelector]:
    """The selectors that rules of these classes name."""
    return [selector_of(name) for name in sorted(set(_named(classes)))]


def _named(classes: Iterable[PodClass]) -> Iterable[str]:
    for each in classes:
        yield from (term.selector for term in (*each.required_pod_affinity, *each.required_pod_anti_affinity))
        yield from (term.selector for term in each.shared_claims)
        yield from (preferred.term.selector for preferred in each.preferred_pod_affinity)
        yield from (spread.selector for spread in each.spread)
