"""Pod classes and the selectors that they name, kept while pods have them and a while longer."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from muster.dialects.marks import Pairs
from muster.gangs.counted_resources import is_counted_resource
from muster.gangs.facts import Amounts, PodClass, PodTerm
from muster.gangs.selectors import PodSelector
from muster.kube.pod_class import identified
from muster.kube.volume_facts import NodeTerms

SWEPT_AT_ONCE: Final = 500
"""Classes, or label sets, that are dropped in one piece: 10 ms."""
_COMPLETED_KEPT: Final = 16384

SharedClaims = tuple[PodTerm, ...]
"""Required affinity to pods that share ResourceClaims."""

NamedSelectors = tuple[PodSelector, ...]
"""Selectors that a class names."""


class Classes:
    """Classes by id, with the number of pods of each, and the selectors that they name.

    A class and its selectors are sent to subscribers with the first pod that has it, and again if it comes back after
    it was dropped. A class is dropped when no pod had it between two sweeps, so that consecutive Jobs with the same
    template keep it; a selector with the last class that names it. `changed` and `changed_selectors` collect what is to
    be sent, None for what was dropped. So entries end with the second sweep after their last pod, and completed classes
    with each sweep (I11).
    """

    def __init__(self) -> None:
        self.changed: dict[str, PodClass | None] = {}
        self.changed_selectors: dict[str, PodSelector | None] = {}
        self._known: dict[str, PodClass] = {}
        self._users: Counter[str] = Counter()
        self._idle: set[str] = set()
        self._sweeping: set[str] = set()
        """Classes that the sweep under way is to drop, unless they come back."""
        self._selectors: dict[str, PodSelector] = {}
        self._namers: Counter[str] = Counter()  # classes by the selectors that they name
        self._named_by: dict[str, NamedSelectors] = {}  # of classes that name any
        self.extended: Counter[str] = Counter()
        """Number of known classes by extended resource that they request."""
        self.blocked: dict[str, str] = {}
        """Why pods of a class wait, by id, if it cannot be sent to subscribers; ends with the class."""
        self._completed: dict[tuple[str, tuple[NodeTerms, ...], Pairs, Amounts, SharedClaims], PodClass] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, class_id: str) -> PodClass:
        """The class with this id; some pod has it."""
        return self._known[class_id]

    def named_by(self, class_id: str) -> NamedSelectors:
        """The selectors that a known class names."""
        return self._named_by.get(class_id, ())

    def completed(
        self,
        pod_class: PodClass,
        volumes: tuple[NodeTerms, ...] = (),
        node_selector: Pairs | None = None,
        requests: Amounts = (),
        shared_claims: SharedClaims = (),
    ) -> PodClass:
        """The class with the parts that do not follow from the pod alone. `node_selector` None: the pod's own;
        `requests`: resources that stand for volumes.
        """
        selector = pod_class.node_selector if node_selector is None else node_selector
        before = volume_requests(pod_class)
        completion = (volumes, selector, requests, shared_claims)
        if (pod_class.volumes, pod_class.node_selector, before, pod_class.shared_claims) == completion:
            return pod_class
        key = (pod_class.id, *completion)
        found = self._completed.get(key)
        if found is None:
            if len(self._completed) >= _COMPLETED_KEPT:
                self._completed.clear()
            own = pod_class.requests if not before else tuple(each for each in pod_class.requests if each not in before)
            all_ = tuple(sorted((*own, *requests))) if requests else own
            found = identified(
                replace(pod_class, requests=all_, volumes=volumes, node_selector=selector, shared_claims=shared_claims)
            )
            self._completed[key] = found
        return found

    def add(self, pod_class: PodClass, selectors: NamedSelectors) -> None:
        """Count one more pod of the class, which names these selectors."""
        class_id = pod_class.id
        self._users[class_id] += 1
        self._sweeping.discard(class_id)
        if class_id in self._known:
            return
        self._known[class_id] = self.changed[class_id] = pod_class
        for resource in {each.resource for each in pod_class.extended}:
            self.extended[resource] += 1
        if selectors:
            self._named_by[class_id] = selectors
        for each in selectors:
            self._namers[each.id] += 1
            if each.id not in self._selectors:
                self._selectors[each.id] = self.changed_selectors[each.id] = each

    def drop(self, class_id: str) -> None:
        """Count one pod of the class less."""
        self._users[class_id] -= 1
        if not self._users[class_id]:
            del self._users[class_id]

    def block(self, class_id: str, problem: str) -> bool:
        """The pods of a class wait; returns False if they did already, or the class is not known."""
        if class_id not in self._known or class_id in self.blocked:
            return False
        self.blocked[class_id] = problem
        return True

    def naming(self, selector: str) -> list[str]:
        """Classes that name a selector."""
        return [class_id for class_id, named in self._named_by.items() if any(each.id == selector for each in named)]

    def sweep(self) -> Iterator[None]:
        """Drop classes that no pod had at the last sweep nor has now. Yields after SWEPT_AT_ONCE of them; classes may
        be added and dropped meanwhile.
        """
        self._completed.clear()
        unused = self._known.keys() - self._users.keys()
        self._sweeping, self._idle = unused & self._idle, unused - self._idle
        number = 0
        while self._sweeping:
            class_id = self._sweeping.pop()
            pod_class = self._known.pop(class_id)
            for resource in {each.resource for each in pod_class.extended}:
                self.extended[resource] -= 1
                if not self.extended[resource]:
                    del self.extended[resource]
            self.changed[class_id] = None
            self.blocked.pop(class_id, None)
            for each in self._named_by.pop(class_id, ()):
                self._unname(each.id)
            number += 1
            if number % SWEPT_AT_ONCE == 0:
                yield

    def all(self) -> tuple[PodClass, ...]:
        """All known classes."""
        return tuple(self._known.values())

    @property
    def selectors(self) -> tuple[PodSelector, ...]:
        """All selectors that known classes name."""
        return tuple(self._selectors.values())

    def _unname(self, selector: str) -> None:
        self._namers[selector] -= 1
        if not self._namers[selector]:
            del self._namers[selector], self._selectors[selector]
            self.changed_selectors[selector] = None


def volume_requests(pod_class: PodClass) -> Amounts:
    """Requests of the class for resources that stand for volumes."""
    return tuple([each for each in pod_class.requests if is_counted_resource(each[0])])
