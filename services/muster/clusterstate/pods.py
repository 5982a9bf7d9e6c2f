"""Pods as they are now: those that hold room on a node, and all that are ours. Others do not matter to anybody."""

from collections.abc import Collection

from msgspec.structs import replace

from muster.clusterstate.classes import Classes
from muster.dialects.marks import Membership
from muster.gangs.facts import PodClass, PodFacts
from muster.kube.objects import Pod, PodSpec
from muster.kube.pod_facts import DEFAULT_SCHEDULER, Priorities, pod_facts

_ENDED = ("Succeeded", "Failed")


class Pods:
    """Facts by uid, and the classes that they name."""

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self.facts: dict[str, PodFacts] = {}
        self.classes = Classes()
        self._scheduler_names = frozenset(scheduler_names)
        self._priorities = Priorities()
        self._unresolved: dict[str, PodSpec] = {}  # pods of which admission left something open

    def is_ours(self, pod: Pod) -> bool:
        """Its scheduler name is one of ours."""
        return (pod.spec.scheduler_name or DEFAULT_SCHEDULER) in self._scheduler_names

    def matters(self, pod: Pod) -> bool:
        """It is ours, or holds room on a node."""
        return self.is_ours(pod) or (bool(pod.spec.node_name) and pod.status.phase not in _ENDED)

    def put(
        self, pod: Pod, membership: Membership, budgets: tuple[str, ...]
    ) -> tuple[PodFacts | None, PodClass | None]:
        """Its facts if more than the revision changed, and its class if subscribers do not know it."""
        facts, read = pod_facts(
            pod,
            self._scheduler_names,
            self._priorities,
            membership.gang_id,
            membership.problem,
            timed_out=membership.timed_out,
            budgets=budgets,
        )
        before = self.facts.get(facts.uid)
        self.facts[facts.uid] = facts
        spec = pod.spec
        if self._priorities.are_open(spec):
            self._unresolved[facts.uid] = PodSpec(
                priority=spec.priority,
                priority_class_name=spec.priority_class_name,
                preemption_policy=spec.preemption_policy,
            )
        elif self._unresolved:
            self._unresolved.pop(facts.uid, None)
        if before is not None and replace(before, revision=facts.revision) == facts:
            return None, None
        unknown = None
        if before is None or before.class_id != facts.class_id:
            unknown = read.pod_class if self.classes.add(read.pod_class) else None
            if before is not None:
                self.classes.drop(before.class_id)
        return facts, unknown

    def remove(self, uid: str) -> bool:
        """It is gone, or does not matter any more. False: it never did."""
        facts = self.facts.pop(uid, None)
        if facts is None:
            return False
        self.classes.drop(facts.class_id)
        self._unresolved.pop(uid, None)
        return True

    def ours_in(self, namespace: str) -> list[PodFacts]:
        """Facts of our pods in a namespace."""
        return [facts for facts in self.facts.values() if facts.namespace == namespace and facts.ours]

    def cover(self, namespace: str, budget: str, *, covered: bool) -> list[PodFacts]:
        """A budget covers all our pods of a namespace, or none: facts of those for which that is new."""
        changed = []
        for facts in self.ours_in(namespace):
            if (budget in facts.budgets) != covered:
                budgets = {*facts.budgets, budget} if covered else {*facts.budgets} - {budget}
                facts = self.facts[facts.uid] = replace(facts, budgets=tuple(sorted(budgets)))
                changed.append(facts)
        return changed

    def reprioritise(self, priorities: Priorities) -> list[PodFacts]:
        """Priority classes changed: facts of the pods that get another priority or policy by that."""
        self._priorities = priorities
        changed = []
        for uid, spec in self._unresolved.items():
            facts = self.facts[uid]
            priority, never = priorities.of_pod(spec), priorities.never_preempts(spec)
            if (priority, never) != (facts.priority, facts.never_preempts):
                facts = self.facts[uid] = replace(facts, priority=priority, never_preempts=never)
                changed.append(facts)
        return changed
