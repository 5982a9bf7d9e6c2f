"""Which pods somebody means: namespaces and labels in one canonical form, with an id that is the same everywhere."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec
from msgspec import Struct

from muster.kube.label_selector import EVERYTHING_SELECTED, NOTHING_SELECTED, LabelSelector


class PodSelector(Struct, frozen=True):
    """Pods with labels that `labels` selects, in `namespaces` and in those whose labels `namespace_labels` selects.

    `id` is a hash of the rest.
    """

    id: str
    namespaces: tuple[str, ...]
    namespace_labels: LabelSelector
    labels: LabelSelector

    @property
    def reads_namespaces(self) -> bool:
        """Labels of namespaces have a say."""
        return bool(self.namespace_labels.requirements)

    @property
    def reaches_all_namespaces(self) -> bool:
        """Pods of any namespace may be meant."""
        return self.namespace_labels != NOTHING_SELECTED

    def selects(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels in a namespace with those."""
        if namespace not in self.namespaces and not self.namespace_labels.matches(namespace_labels):
            return False
        return self.labels.matches(labels)


def pod_selector(
    labels: LabelSelector, namespaces: Iterable[str], namespace_labels: LabelSelector = NOTHING_SELECTED
) -> PodSelector:
    """The selector in its canonical form."""
    named = () if namespace_labels == EVERYTHING_SELECTED else tuple(sorted(set(namespaces)))
    content = msgspec.json.encode((named, namespace_labels, labels))
    return PodSelector(blake2b(content, digest_size=16).hexdigest(), named, namespace_labels, labels)
