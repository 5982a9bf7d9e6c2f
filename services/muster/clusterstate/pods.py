"""Pods that use capacity of a node, and all pods of ours; other pods are ignored."""

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from muster.clusterstate.claim_obstacles import no_right
from muster.clusterstate.claim_users import Use
from muster.clusterstate.device_claims import USES, DeviceClaims, DeviceUse, label_name, users_label
from muster.clusterstate.device_offers import DeviceOffers
from muster.clusterstate.label_sets import LabelledPods, LabelSets
from muster.clusterstate.nodes import Offer
from muster.clusterstate.pod_classes import Classes, NamedSelectors, volume_requests
from muster.clusterstate.volumes import Volumes
from muster.dialects.definitions import ControllerGang
from muster.dialects.marks import Membership, Pairs
from muster.gangs.facts import NodeFacts, PodClass, PodFacts
from muster.gangs.quoting import quoted
from muster.kube.api_resources import NAMESPACES
from muster.kube.gang_marks import pod_group_of
from muster.kube.objects import Pod, PodSpec
from muster.kube.pod_device_claims import DeviceClaimOfPod, device_claims_of, has_device_claims
from muster.kube.pod_facts import DEFAULT_SCHEDULER, Priorities, pod_facts
from muster.kube.volume_facts import claims_of, has_claims

ENDED_PHASES: Final = ("Succeeded", "Failed")

MAX_BUDGETS_SENT: Final = 8
"""Disruption budgets of a pod in its facts. Kubernetes does not evict pods that more than one covers, so that the
others make no difference; without a limit, a namespace with as many budgets as pods would fill the memory.
"""


class Pods:
    """Facts by uid, their classes and label sets. Methods that change facts return the changed ones.

    A pod's class contains properties of the pod, the demands of its volumes, and the node selector of its controller's
    gang. So a change of a claim may change the classes of pods, one of another pod cannot. Entries end with the pod
    (I11).
    """

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self.facts: dict[str, PodFacts] = {}
        self.classes = Classes()
        self.label_sets = LabelSets()
        self.volumes = Volumes()
        self.devices = DeviceClaims(self._uses_capacity)
        self.device_offers = DeviceOffers(self.devices)
        self._scheduler_names = frozenset(scheduler_names)
        self._priorities = Priorities()
        self._unresolved: dict[str, PodSpec] = {}  # pods whose priority admission did not resolve
        self._with_more: dict[str, str] = {}
        """Pods that use claims, are narrowed or name selectors of namespaces, and their problems apart from those of
        their claims."""
        self._reading_namespaces: set[str] = set()  # pods that name a selector with a namespaceSelector
        self._narrowed: dict[str, MergedNodeSelector] = {}  # pods whose controller selects nodes, too
        self._unread: Collection[str] = ()

    def is_ours(self, pod: Pod) -> bool:
        """Whether the pod's scheduler name is one of ours."""
        return (pod.spec.scheduler_name or DEFAULT_SCHEDULER) in self._scheduler_names

    def matters(self, pod: Pod) -> bool:
        """Whether the pod is scheduled by Muster, or uses capacity of a node."""
        return self.is_ours(pod) or (bool(pod.spec.node_name) and pod.status.phase not in ENDED_PHASES)

    def labelled(self, pod: Pod) -> tuple[LabelledPods, bool]:
        """Add a pod that matters to its label set, which is returned, and whether the label set is new."""
        labels = pod.metadata.labels
        if has_device_claims(pod.spec.resource_claims) and self.is_ours(pod):
            labels = {**(labels or {}), **_claim_labels(pod)}
        return self.label_sets.put(pod.metadata.uid, pod.metadata.namespace, labels)

    def put(
        self, pod: Pod, membership: Membership, labelled: LabelledPods, job: ControllerGang | None = None
    ) -> list[PodFacts]:
        """Add or update a pod that matters. `job`: the gang of its controller."""
        facts, read = pod_facts(
            pod,
            self._scheduler_names,
            self._priorities,
            membership.gang_id,
            membership.problem,
            timed_out=membership.timed_out,
            budgets=labelled.budgets[:MAX_BUDGETS_SENT] if self.is_ours(pod) else (),
            label_set=labelled.label_set.id,
        )
        uid, selectors = facts.uid, read.selectors
        reads_namespaces = bool(selectors) and any(each.reads_namespaces for each in selectors)
        uses_claims = has_claims(pod.spec.volumes) or has_device_claims(pod.spec.resource_claims)
        self._narrow(uid, read.pod_class.node_selector, membership, job)
        if reads_namespaces or uses_claims or uid in self._narrowed or uid in self._with_more:
            self._note_more(facts, pod, reads_namespaces)
        facts, pod_class, selectors = self._completed(facts, read.pod_class, selectors)
        self._note_priority(uid, pod.spec)
        return [facts] if self._keep(facts, pod_class, selectors) else []

    def offered(self, node: NodeFacts) -> Offer:
        """Resources of a node that stand for volumes and devices."""
        amounts, labels = self.volumes.offered(node.name)
        devices, extended = self.device_offers.of(node)
        return Offer((*amounts, *devices), labels, extended)

    @property
    def weight_of_node(self) -> int:
        """Processor time of what one node offers, in multiples of a pod's."""
        return self.volumes.weight_of_node + self.devices.weight_of_node

    def take_stale(self) -> Collection[str]:
        """Pods whose demands for volumes or devices may have changed since the last call."""
        return {*self.volumes.take_stale_pods(), *self.devices.take_stale_pods()}

    def take_stale_nodes(self, nodes: Collection[str]) -> Collection[str]:
        """Nodes of these that may offer other amounts than at the last call."""
        return {*self.volumes.take_stale_nodes(nodes), *self.devices.take_stale_nodes(nodes)}

    def put_node(self, node: NodeFacts) -> None:
        """A node was added or changed."""
        self.volumes.put_node(node)
        self.devices.put_node(node)

    def drop_node(self, name: str) -> None:
        """A node was removed."""
        self.volumes.drop_node(name)
        self.devices.drop_node(name)
        self.device_offers.drop_node(name)

    def depends_on_others(self, uid: str) -> bool:
        """The pod uses claims or is narrowed, so that its class does not follow from the pod alone."""
        return uid in self._with_more

    def remove(self, uid: str) -> bool:
        """Forget a pod that was removed or does not matter any more. Returns False if it never did."""
        self.label_sets.drop(uid)
        facts = self.facts.pop(uid, None)
        if facts is None:
            return False
        self.classes.drop(facts.class_id)
        self._unresolved.pop(uid, None)
        self._with_more.pop(uid, None)
        self._narrowed.pop(uid, None)
        self._reading_namespaces.discard(uid)
        self.devices.extended.put_owner(uid)
        self.volumes.release(uid)
        self.devices.release(uid)
        return True

    def recompute(self, uid: str) -> list[PodFacts]:
        """Compute again what does not follow from the pod alone: its claims, budgets and priority."""
        before = self.facts.get(uid)
        if before is None:  # the pod was removed, or could not be read
            return []
        before = self._unblocked(before)
        selectors = self.classes.named_by(before.class_id)
        facts, pod_class, selectors = self._completed(
            self._reprioritised(before), self.classes[before.class_id], selectors
        )
        if facts.ours and (budgets := self.label_sets.of(uid).budgets[:MAX_BUDGETS_SENT]) != facts.budgets:
            facts = replace(facts, budgets=budgets)
        return [facts] if self._keep(facts, pod_class, selectors) else []

    def rejoin(self, uid: str, before: Membership, after: Membership, job: ControllerGang | None) -> list[PodFacts]:
        """Change a pod's gang membership, because the gang of its controller changed."""
        facts = self.facts.get(uid)
        if facts is None:  # the pod could not be read
            return []
        facts = self._unblocked(facts)
        pod_class, selectors = self.classes[facts.class_id], self.classes.named_by(facts.class_id)
        narrowed = self._narrowed.get(uid)
        own_selector = pod_class.node_selector if narrowed is None else narrowed.own
        problem = _reworded(self._with_more.get(uid, facts.problem), before.problem, after.problem)
        self._narrow(uid, own_selector, after, job)
        self.devices.rejoin(uid, after.gang_id)
        if uid in self._narrowed or uid in self._with_more:
            self._with_more[uid] = problem
        pod_class = self.classes.completed(
            pod_class, pod_class.volumes, own_selector, volume_requests(pod_class), pod_class.shared_claims
        )
        facts = replace(facts, gang=after.gang_id, timed_out=after.timed_out, problem=problem)
        facts, pod_class, selectors = self._completed(facts, pod_class, selectors)
        return [facts] if self._keep(facts, pod_class, selectors) else []

    def _narrow(self, uid: str, own_selector: Pairs, membership: Membership, job: ControllerGang | None) -> None:
        if job is not None and job.node_selector and job.gang_id == membership.gang_id:
            self._narrowed[uid] = MergedNodeSelector(own_selector, job)
        elif self._narrowed:
            self._narrowed.pop(uid, None)

    def unread(self, kinds: Collection[str]) -> Collection[str]:
        """Set the kinds that cannot be read; pods that depend on one wait, with a problem that says so. Returns the
        pods to compute again.
        """
        self._unread = kinds
        self.volumes.unread(kinds)
        self.devices.unread(kinds)
        return list(self._with_more)

    def _note_more(self, facts: PodFacts, pod: Pod, reads_namespaces: bool) -> None:
        """Note the claims of a pod."""
        uid = facts.uid
        problems: list[str] = []
        claims = claims_of(pod.spec.volumes, facts.name, problems)
        devices: tuple[DeviceClaimOfPod, ...] = ()
        if facts.ours:
            devices = device_claims_of(pod.spec.resource_claims, pod.status.resource_claim_statuses, problems)
        if facts.phase.ended:
            reads_namespaces, claims, devices = False, (), ()
        (self._reading_namespaces.add if reads_namespaces else self._reading_namespaces.discard)(uid)
        if reads_namespaces or claims or devices or problems or uid in self._narrowed:
            self._with_more[uid] = "; ".join([each for each in (facts.problem, *problems) if each])
        else:
            self._with_more.pop(uid, None)
        if claims:
            self.volumes.use(Use(uid, facts.namespace, facts.name, claims, facts.node, facts.created_seconds))
        else:
            self.volumes.release(uid)
        if not (facts.ours or facts.phase.ended) and has_device_claims(pod.spec.resource_claims):
            if group := pod_group_of(pod):
                self.devices.put_other(uid, facts.namespace, group)
        elif devices:
            group = pod_group_of(pod)
            use = DeviceUse(uid, facts.namespace, devices, facts.node, facts.gang, facts.created_seconds, group)
            self.devices.use(use)
        else:
            self.devices.release(uid)

    def block(self, classes: Mapping[str, str]) -> list[str]:
        """Let the pods of classes that cannot be sent to subscribers wait; `classes`: why, by id. Returns the pods to
        compute again.
        """
        new = {class_id for class_id, problem in classes.items() if self.classes.block(class_id, problem)}
        return [uid for uid, facts in self.facts.items() if facts.class_id in new] if new else []

    def _unblocked(self, facts: PodFacts) -> PodFacts:
        """The facts without the problem of their class."""
        if (problem := self.classes.blocked.get(facts.class_id)) is None or not facts.problem.endswith(problem):
            return facts
        return replace(facts, problem=facts.problem.removesuffix(problem).removesuffix("; "))

    def _completed(
        self, facts: PodFacts, pod_class: PodClass, selectors: NamedSelectors
    ) -> tuple[PodFacts, PodClass, NamedSelectors]:
        """Facts, class and the selectors that it names, completed by what does not follow from the pod alone."""
        completed, pod_class, selectors = self._with_demands(facts, pod_class, selectors)
        problem = self.classes.blocked.get(completed.class_id) if self.classes.blocked else None
        if problem is not None and completed.ours:
            both = f"{completed.problem}; {problem}" if completed.problem else problem
            completed = replace(completed, problem=both)
        return completed, pod_class, selectors

    def _with_demands(
        self, facts: PodFacts, pod_class: PodClass, selectors: NamedSelectors
    ) -> tuple[PodFacts, PodClass, NamedSelectors]:
        """Facts, class and the selectors that it names, with the demands of claims and of the controller's gang."""
        own_problem = self._with_more.get(facts.uid)
        if own_problem is None:
            return facts, pod_class, selectors
        if not facts.ours:
            completed = self.classes.completed(pod_class, requests=self.volumes.requests(facts.uid))
            return replace(facts, class_id=completed.id), completed, selectors
        demands, devices = self.volumes.demands(facts.uid), self.devices.demands(facts.uid)
        narrowed = self._narrowed.get(facts.uid)
        selector = None if narrowed is None else narrowed.node_selector
        terms, requests = demands.terms + devices.terms, tuple(sorted(demands.requests + devices.requests))
        if pod_class.shared_claims:
            before = {term.selector for term in pod_class.shared_claims}
            selectors = tuple(each for each in selectors if each.id not in before)
        completed = self.classes.completed(pod_class, terms, selector, requests, devices.shared_claims)
        problems = [own_problem, "" if narrowed is None else narrowed.clash]
        if not facts.node:
            problems += [demands.problem, devices.problem, self._unread_namespaces(facts.uid)]
        return (
            replace(
                facts,
                class_id=completed.id,
                problem="; ".join([each for each in problems if each]),
                claims=() if facts.node else demands.claims,
                device_claims=() if facts.node else devices.claims,
                group_claims=() if facts.node else devices.group_claims,
                group_name="" if facts.node else devices.group[0],
                group_uid="" if facts.node else devices.group[1],
            ),
            completed,
            (*selectors, *devices.selectors),
        )

    def _uses_capacity(self, uid: str) -> bool:
        """Whether the requests of the pod count on its node, now or once it has one."""
        facts = self.facts.get(uid)
        return facts is not None and not facts.phase.ended

    def _unread_namespaces(self, uid: str) -> str:
        if NAMESPACES.kind in self._unread and uid in self._reading_namespaces:
            return f"affinity has a namespaceSelector: {no_right(NAMESPACES.kind)}"
        return ""

    def _keep(self, facts: PodFacts, pod_class: PodClass, selectors: NamedSelectors) -> bool:
        """Store facts; returns whether more than the revision changed."""
        before = self.facts.get(facts.uid)
        self.facts[facts.uid] = facts
        if self.devices.extended.owners:
            self.devices.extended.put_owner(facts.uid)
        if before is not None and (before is facts or replace(before, revision=facts.revision) == facts):
            return False
        if before is None or before.class_id != facts.class_id:
            self.classes.add(pod_class, selectors)
            if pod_class.extended:
                self.devices.extended.request(self.classes.extended, (each.resource for each in pod_class.extended))
            if before is not None:
                self.classes.drop(before.class_id)
        return True

    def _note_priority(self, uid: str, spec: PodSpec) -> None:
        if self._priorities.are_relevant_to(spec):
            self._unresolved[uid] = PodSpec(
                priority=spec.priority,
                priority_class_name=spec.priority_class_name,
                preemption_policy=spec.preemption_policy,
            )
        elif self._unresolved:
            self._unresolved.pop(uid, None)

    def covered(self, by: Iterable[LabelledPods]) -> list[str]:
        """Uids of the pods with these label sets."""
        return [uid for labelled in by for uid in labelled.uids]

    def reprioritise(self, priorities: Priorities) -> Collection[str]:
        """Priority classes changed; returns the pods whose priority or preemption policy may have changed."""
        self._priorities = priorities
        return list(self._unresolved)

    def _reprioritised(self, facts: PodFacts) -> PodFacts:
        spec = self._unresolved.get(facts.uid)
        if spec is None:
            return facts
        priority, never = self._priorities.of_pod(spec), self._priorities.never_preempts(spec)
        if (priority, never) == (facts.priority, facts.never_preempts):
            return facts
        return replace(facts, priority=priority, never_preempts=never)


def _claim_labels(pod: Pod) -> dict[str, str]:
    """Labels by which the pods that share ResourceClaims are selected."""
    claims, group = (
        device_claims_of(pod.spec.resource_claims, pod.status.resource_claim_statuses, []),
        pod_group_of(pod),
    )
    return {users_label(label_name(each, group)): USES for each in claims if group or not each.template}


def _reworded(problem: str, before: str, after: str) -> str:
    """The pod's problem, with the problem of its marks, its first part, replaced."""
    rest = problem.removeprefix(before).removeprefix("; ") if before else problem
    return "; ".join([each for each in (after, rest) if each])


class MergedNodeSelector:
    """A pod's own node selector, merged with that of its controller's gang."""

    def __init__(self, own: Pairs, job: ControllerGang) -> None:
        self.own, self._job = own, job

    @cached_property
    def node_selector(self) -> Pairs:
        """Labels that a node must have. On a conflict the pod's value applies; the pod waits in this case anyway."""
        return tuple(sorted({**dict(self._job.node_selector), **dict(self.own)}.items()))

    @cached_property
    def clash(self) -> str:
        """Why no node can match both; empty without a conflict."""
        own = dict(self.own)
        for key, value in self._job.node_selector:
            if own.get(key, value) != value:
                own_value = f"nodeSelector has {quoted(key)}: {quoted(own[key])}"
                return f"{own_value}, but {self._job.source} has {quoted(value)}: no node has both; change one of them"
        return ""
