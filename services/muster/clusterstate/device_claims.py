"""Demands of pods for devices by ResourceClaims, and what nodes offer for them: counted resources (decision 0061)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from muster.cel.selection import expression_problem
from muster.clusterstate.claim_obstacles import no_right
from muster.clusterstate.demands import NO_DEMANDS, Demands
from muster.clusterstate.device_claim_groups import DeviceClaimGroups, GroupKey
from muster.clusterstate.device_claim_users import MAX_USERS, DeviceClaimUsers, UserPlace
from muster.clusterstate.device_objects import ClaimId, DeviceObjects
from muster.clusterstate.extended_resources import ExtendedResources
from muster.clusterstate.shared_devices import SharedDevicesInUse
from muster.devices.columns import MOST_PER_NODE, columns_of
from muster.devices.facts import Claim
from muster.devices.instance import problem_of
from muster.devices.reach import Reach, is_on_one_node
from muster.devices.selectors import Selectors
from muster.gangs.counted_resources import is_searched
from muster.gangs.facts import Amounts, NodeFacts, NodeSelectorTerm, PodTerm
from muster.gangs.quantity import INT64_MAX
from muster.gangs.quoting import listed, quoted
from muster.gangs.selectors import LabelSelector, Operator, PodSelector, Requirement, pod_selector
from muster.kube.api_resources import RESOURCE_CLAIMS
from muster.kube.device_objects import DeviceResource
from muster.kube.objects import PodGroup
from muster.kube.pod_device_claims import DeviceClaimOfPod
from muster.kube.pod_group_claims import group_claims

MAX_COLUMNS: Final = 48
"""Resources that stand for devices at a time. Further selections are not counted, only the devices of their class, so
that a node may turn out to have no fitting devices when they are chosen."""


USES: Final = "used"
"""Value of the labels of `users_label`."""
_WEIGHT_OF_SEARCH: Final = 80
"""Weight of a search of `SEARCH_STEPS`, 30 ms."""


class DeviceUse(Struct, frozen=True, gc=False):
    """A pod that uses ResourceClaims. `node`: the one that it has, if any; `gang`: the id of its gang; `since` orders
    pods; `group`: the name of its PodGroup; `start`: the ids of the gangs that start together with its own; none: it
    starts alone.
    """

    uid: str
    namespace: str
    claims: tuple[DeviceClaimOfPod, ...]
    node: str = ""
    gang: str = ""
    since: int = 0
    group: str = ""
    start: tuple[str, ...] = ()


class _Column(NamedTuple):
    """Claims of which nodes offer a number, and the pods that request it."""

    unit: tuple[Claim, ...]
    pods: set[str]


class DeviceClaims:
    """Demands of pods' ResourceClaims. Pods whose demands and nodes whose offers may have changed are collected until
    they are taken. Entries end with the pod, a resource with the last pod that requests it (I11).
    """

    def __init__(self, uses_capacity: Callable[[str], bool]) -> None:
        """`uses_capacity` returns whether the requests of the pod with this uid count."""
        self.objects = DeviceObjects()
        self.extended = ExtendedResources(self.objects, uses_capacity, self._units_changed)
        self._uses: dict[str, DeviceUse] = {}
        self._users: dict[ClaimId, DeviceClaimUsers] = {}
        self._shared: dict[ClaimId, Reach] = {}
        """Reaches of the claims that several pods share and that are not allocated, as the demands of pods have them.
        Entries end with the next batch in which a claim is not among these.
        """
        self._groups = DeviceClaimGroups()
        self._of_gang: dict[str, set[str]] = {}
        """Uids of pods that use claims, by gang."""
        self._starts: dict[str, tuple[str, ...]] = {}
        """The gangs of a group by the id of each; entries end with the gang, or its group."""
        self._requested: dict[str, Collection[str]] = {}  # resources by uid of the pod
        self._in_use = SharedDevicesInUse()
        self._columns: dict[str, _Column] = {}
        self._selector_lists: Sequence[Selectors] | None = None
        """None: to be computed, because nodes offer numbers of other claims."""
        self._exceeded = 0
        """Expressions that cost too much, when pods were last noted because of that."""
        self._unread: Collection[str] = ()
        self._stale_pods: set[str] = set()
        self._stale_nodes: set[str] = set()
        self._all_nodes_stale = False

    # -- pods

    def use(self, use: DeviceUse) -> None:
        """Add or update a pod that uses claims."""
        if use.group:
            use = replace(use, claims=self._groups.put_pod(use.uid, (use.namespace, use.group), use.claims))
        elif use.uid in self._uses:
            self._groups.drop_pod(use.uid)
        self._use(use)

    def _use(self, use: DeviceUse) -> None:
        use = replace(use, start=self._starts.get(use.gang, ()))
        if use == self._uses.get(use.uid):
            return
        self._release(use.uid)
        self._uses[use.uid] = use
        if use.gang:
            self._of_gang.setdefault(use.gang, set()).add(use.uid)
        place = UserPlace(not use.node, use.since, use.uid)
        for id_ in dict.fromkeys(_ids(use)):
            users = self._users.get(id_)
            if users is None:
                users = self._users[id_] = DeviceClaimUsers()
            self._stale_pods |= users.put(use.uid, use.gang or use.uid, use.start or use.gang or use.uid, place)
            self._hold(id_)

    def rejoin(self, uid: str, gang: str) -> None:
        """A pod belongs to another gang."""
        use = self._uses.get(uid)
        if use is not None:
            self._use(replace(use, gang=gang))

    def start_together(self, gang: str, gangs: tuple[str, ...]) -> None:
        """A gang starts together with these gangs, itself included, from now on; none: it starts alone, or is gone. Its
        pods share the demand for a claim with those of the others that start together with the same gangs.
        """
        if gangs == self._starts.get(gang, ()):
            return
        if gangs:
            self._starts[gang] = gangs
        else:
            del self._starts[gang]
        for uid in list(self._of_gang.get(gang, ())):
            self._stale_pods.add(uid)
            self._use(self._uses[uid])

    def release(self, uid: str) -> None:
        """A pod was removed, has ended, or uses no claims."""
        if uid in self._uses:
            self._groups.drop_pod(uid)
            self._release(uid)
        elif (group := self._groups.drop_other(uid)) is not None:
            self._hold_all_of(group)

    def _release(self, uid: str) -> None:
        use = self._uses.pop(uid, None)
        if use is None:
            return
        if use.gang:
            of_gang = self._of_gang[use.gang]
            of_gang.discard(uid)
            if not of_gang:
                del self._of_gang[use.gang]
        self._request(uid, {})
        self._note_nodes(self._in_use.put(uid, "", {}))
        for id_ in _ids(use):
            users = self._users.get(id_)
            if users is None:
                continue
            self._stale_pods |= users.discard(uid)
            if not users:
                del self._users[id_]
            self._hold(id_)

    def demands(self, uid: str) -> Demands:
        """The demands of a pod's claims."""
        use = self._uses.get(uid)
        if use is None:
            return NO_DEMANDS
        terms: set[tuple[NodeSelectorTerm, ...]] = set()
        waiting: list[Claim] = []
        requested: list[Claim] = []
        in_use: list[Claim] = []
        shared: list[tuple[PodTerm, PodSelector]] = []
        problems: list[str] = []
        for each in {each.name or each.reference: each for each in use.claims}.values():
            claim, problem = self._claim(use, each)
            if problem or claim is None:
                problems.append(problem)
            elif claim.allocation is None or _is_own(claim, use):
                waiting.append(replace(claim, allocation=None))
                if self._requests(use, each.name):
                    requested.append(waiting[-1])
                reach = self._reach_of_shared(waiting[-1])
                if reach.selector is not None:
                    terms.add(reach.selector)
                if reach.topology_key:
                    selector = _users_selector(use.namespace, label_name(each, use.group))
                    shared.append((PodTerm(selector.id, reach.topology_key), selector))
            else:
                if claim.unmet:
                    problems.append(f"waits for ResourceClaim {quoted(claim.name)}, as {claim.unmet}")
                if claim.allocation.node_selector is not None:
                    terms.add(claim.allocation.node_selector)
                if self._requests(use, each.name) and self._is_counted_claim((use.namespace, each.name)):
                    requested.append(replace(claim, allocation=None))
                    if self._is_held((use.namespace, each.name)):
                        in_use.append(requested[-1])
        units = columns_of(requested)
        problem = problem_of(waiting, self.objects.devices.classes).blocked
        problems += [problem] if problem else self._bad_expressions(waiting)
        amounts = {name: amount for name, amount in units.amounts.items() if self._has_place(name)}
        self._request(uid, {name: units.units[name] for name in amounts})
        held = columns_of(in_use).amounts if in_use else {}
        self._note_nodes(self._in_use.put(uid, use.node, {name: held[name] for name in amounts if name in held}))
        return Demands(
            tuple(sorted(terms, key=repr)),
            tuple(dict.fromkeys(each.name for each in use.claims if each.name)),
            listed(list(dict.fromkeys(problems))),
            tuple(sorted(amounts.items())),
            tuple(term for term, _ in shared),
            tuple(selector for _, selector in shared),
            tuple(dict.fromkeys(each.name for each in use.claims if each.name and each.group)),
            next(((use.group, each.group) for each in use.claims if each.group), ("", "")),
        )

    def _claim(self, use: DeviceUse, of_pod: DeviceClaimOfPod) -> tuple[Claim | None, str]:
        """The claim, or why the pod waits for it."""
        if not of_pod.name:
            of_group = f" of PodGroup {quoted(use.group)}" if of_pod.group else ""
            return None, (
                f"waits for the ResourceClaim {quoted(of_pod.reference)}{of_group} to be created from "
                f"ResourceClaimTemplate {quoted(of_pod.template)}"
            )
        what, known = f"ResourceClaim {quoted(of_pod.name)}", self.objects.claims.get((use.namespace, of_pod.name))
        if known is None:
            if RESOURCE_CLAIMS.kind in self._unread:
                return None, f"{what} is not known: {no_right(RESOURCE_CLAIMS.kind)}"
            return None, f"{what} does not exist"
        claim = known.facts
        if claim is None:
            return None, known.problem
        if claim.deleting:
            return None, f"{what} is being deleted"
        if of_pod.template and claim.owner != (of_pod.group or use.uid):
            whom = f"PodGroup {quoted(use.group)}" if of_pod.group else "the pod"
            return None, f"{what} was not created for {whom}; delete or rename one of them"
        users = self._users[use.namespace, of_pod.name]
        if not of_pod.group and users.exceeds_limit(use.uid) and use.uid not in claim.reserved_for:
            return None, (
                f"{what} is used by more than {MAX_USERS} pods, and the API server reserves it for no more: divide its "
                "pods among several claims"
            )
        return claim, ""

    def _requests(self, use: DeviceUse, name: str) -> bool:
        """The pod requests the devices of the claim, for all pods that share it and start together with it."""
        return self._users[use.namespace, name].requests(use.uid)

    def _reach_of_shared(self, claim: Claim) -> Reach:
        """Where the pods that share an unallocated claim must be; a pod that uses it alone may be anywhere."""
        id_ = (claim.namespace, claim.name)
        if len(self._users[id_]) == 1:
            return Reach()
        reach = self._shared[id_] = self.objects.reach(claim)
        return reach

    def _is_counted_claim(self, id_: ClaimId) -> bool:
        """The allocated claim is of one pod or gang, which requests its devices as resources: they are free when it
        goes. One with requests that are not supported, which another scheduler allocated, is not counted.
        """
        known, users = self.objects.claims.get(id_), self._users.get(id_)
        if known is None or known.facts is None or known.facts.extended or users is None or users.gangs != 1:
            return False
        if known.facts.unsupported:
            return False
        return all(uid in users or self._groups.is_group(uid) for uid in known.facts.reserved_for)

    def _is_held(self, id_: ClaimId) -> bool:
        """A bound pod uses the claim, and other nodes might offer its devices, too: nobody offers them but the node of
        the pod that requests them.
        """
        known, users = self.objects.claims.get(id_), self._users.get(id_)
        if known is None or known.facts is None or known.facts.allocation is None or users is None:
            return False
        return users.has_bound and not is_on_one_node(known.facts.allocation)

    def _is_idle(self, id_: ClaimId) -> bool:
        """The claim is reserved for a PodGroup only, and no pod that uses it has a node."""
        known, users = self.objects.claims.get(id_), self._users.get(id_)
        if known is None or known.facts is None or users is None or users.has_bound:
            return False
        match known.facts.reserved_for:
            case (group,):
                return self._groups.is_group(group) and not self._groups.has_others(group)
            case _:
                return False

    def put_other(self, uid: str, namespace: str, group: str) -> None:
        """A pod of another scheduler that has a node, and claims, belongs to a PodGroup."""
        if self._groups.put_other(uid, (namespace, group)):
            self._hold_all_of((namespace, group))

    def _hold_all_of(self, group: GroupKey) -> None:
        for each in self._groups.claims_of(group):
            if each.name:
                self._hold((group[0], each.name))

    def _hold(self, id_: ClaimId) -> None:
        self.objects.mark_idle(id_, idle=self._is_idle(id_))
        counted = (self._is_counted_claim(id_) and not self._is_held(id_)) or self.extended.is_counted(id_)
        self._note_nodes(self.objects.hold(id_, counted=counted))

    def _bad_expressions(self, claims: Iterable[Claim]) -> list[str]:
        """Selectors of the claims and their classes that cannot be compiled, or cost too much."""
        classes, too_expensive = self.objects.devices.classes, self.objects.selection.too_expensive
        return [
            f"ResourceClaim {quoted(claim.name)}, request {request.path(each)}: {problem}"
            for claim in claims
            for request in claim.requests
            for each in request.alternatives
            for expression in (*classes[each.device_class].selectors, *each.selectors)
            if (problem := expression_problem(expression) or too_expensive(expression))
        ]

    # -- counted resources

    def offered(self, node: NodeFacts) -> Amounts:
        """Amounts that a node offers of the resources that stand for devices."""
        if not self._columns:
            return ()
        in_use = self._in_use.on(node.name)
        offers = [
            (name, min(self.objects.offered(node, column.unit, MOST_PER_NODE) + in_use[name], INT64_MAX))
            for name, column in self._columns.items()
        ]
        return tuple((name, number) for name, number in offers if number)

    @property
    def units(self) -> Mapping[str, tuple[Claim, ...]]:
        """Claims of which nodes offer a number, by the resource that stands for them."""
        return {name: column.unit for name, column in self._columns.items()}

    @property
    def selector_lists(self) -> Sequence[Selectors]:
        """The lists of selectors by which the devices of a node are counted."""
        if self._selector_lists is None:
            units = chain.from_iterable((*self.units.values(), *self.extended.units.values()))
            self._selector_lists = self.objects.devices.selector_lists(list(units))
        return self._selector_lists

    @property
    def weight_of_node(self) -> int:
        """Processor time of what one node offers, which increases with the number of resources; one that stands for
        claims together may need a search.
        """
        return len(self._columns) + len(self.extended) + _WEIGHT_OF_SEARCH * sum(map(is_searched, self._columns))

    def _has_place(self, name: str) -> bool:
        return name in self._columns or len(self._columns) < MAX_COLUMNS

    def _request(self, uid: str, units: dict[str, tuple[Claim, ...]]) -> None:
        """The pod requests these resources now, and no others."""
        before = self._requested.pop(uid, ())
        if units:
            self._requested[uid] = tuple(units)
        for name, unit in units.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column(unit, set())
                self._units_changed(self.objects.devices.pools.named_nodes)
            column.pods.add(uid)
        for name in before:
            if name not in units:
                self._columns[name].pods.discard(uid)
                if not self._columns[name].pods:
                    del self._columns[name]
                    self._units_changed(self.objects.devices.pools.named_nodes)

    # -- objects

    def unread(self, kinds: Collection[str]) -> None:
        """Set the kinds that cannot be read."""
        self._unread = kinds
        self._stale_pods |= self._uses.keys()

    def put_group(self, group: PodGroup) -> None:
        """A PodGroup (scheduling.k8s.io) was added or changed."""
        self._resolve_again(self._groups.put(group_claims(group), group.metadata.uid))

    def drop_group(self, uid: str) -> None:
        """A PodGroup was removed."""
        self._resolve_again(self._groups.put(None, uid))

    def _resolve_again(self, changed: Mapping[str, tuple[DeviceClaimOfPod, ...]]) -> None:
        """Pods whose claims are others now, because their PodGroup changed."""
        for uid, claims in changed.items():
            self._stale_pods.add(uid)
            self._use(replace(self._uses[uid], claims=claims))

    def put_claim(self, claim: DeviceResource) -> None:
        self._claim_changed(*self.objects.put_claim(claim))

    def drop_claim(self, uid: str) -> None:
        self._claim_changed(*self.objects.drop_claim(uid))

    def put_slice(self, slice_: DeviceResource) -> None:
        self._note_nodes(self.objects.put_slice(slice_))

    def drop_slice(self, uid: str) -> None:
        self._note_nodes(self.objects.drop_slice(uid))

    def taint_slice(self, name: str) -> None:
        """Apply the DeviceTaintRules to a slice again."""
        self._note_nodes(self.objects.taint_slice(name))

    def put_class(self, device_class: DeviceResource) -> None:
        self._class_changed(self.objects.put_class(device_class))

    def drop_class(self, uid: str) -> None:
        self._class_changed(self.objects.drop_class(uid))

    def put_node(self, node: NodeFacts) -> None:
        """A node was added or changed: pools may select it by its labels."""
        if (self._columns or self.extended) and self.objects.devices.pools.named_nodes is None:
            self._stale_nodes.add(node.name)

    def drop_node(self, name: str) -> None:
        self.objects.remove_node(name)

    def _claim_changed(self, id_: ClaimId | None, nodes: Collection[str] | None) -> None:
        if id_ is not None:
            known = self.objects.claims.get(id_)
            self.extended.put_claim(id_, known.facts if known is not None else None)
            self._stale_pods.update(self._users.get(id_, ()))
            self._hold(id_)
        self._note_nodes(nodes)

    def _class_changed(self, differs: bool) -> None:
        if differs:
            self.extended.update_classes()
            self._stale_pods |= self._uses.keys()
            self._units_changed(self.objects.devices.pools.named_nodes)

    def _units_changed(self, names: Collection[str] | None) -> None:
        """Nodes offer numbers of other claims."""
        self._selector_lists = None
        self._note_nodes(names)

    def _note_nodes(self, names: Collection[str] | None) -> None:
        if names is None:
            self._all_nodes_stale = True
        else:
            self._stale_nodes.update(names)

    # -- what is to be computed again

    @property
    def has_stale_pods(self) -> bool:
        """There are pods whose demands may have changed."""
        return bool(self._stale_pods)

    def take_stale_pods(self) -> Collection[str]:
        """Pods whose demands may have changed since the last call."""
        if self._shared:
            self._compare_reaches()
        if self.objects.selection.exceeded != self._exceeded:  # pods with these expressions wait because of it
            self._exceeded = self.objects.selection.exceeded
            self._stale_pods |= self._uses.keys()
        stale, self._stale_pods = self._stale_pods, set()
        return stale

    def _compare_reaches(self) -> None:
        """Note the pods that share claims of which slices or classes changed the reach."""
        for id_, before in list(self._shared.items()):
            known, users = self.objects.claims.get(id_), self._users.get(id_, ())
            if known is None or known.facts is None or known.facts.allocation is not None or len(users) < 2:
                del self._shared[id_]
            elif self.objects.reach(known.facts) != before:
                del self._shared[id_]
                self._stale_pods.update(users)

    def take_stale_nodes(self, nodes: Iterable[str]) -> Collection[str]:
        """Nodes of these that may offer other amounts than at the last call."""
        stale = set(nodes) if self._all_nodes_stale else self._stale_nodes
        self._stale_nodes, self._all_nodes_stale = set(), False
        return stale

    def sizes(self) -> Counter[str]:
        """Number of entries by kind."""
        pools = self.objects.devices.pools
        return Counter(
            resource_claims=len(self.objects.claims),
            resource_slices=len(pools),
            device_columns=len(self._columns),
            device_taint_rules=len(self.objects.taint_rules),
        )


def label_name(of_pod: DeviceClaimOfPod, group: str) -> str:
    """The part of a label's key that names the claim: the PodGroup's entry, if it is created from a template, since the
    name of the claim may not be known yet.
    """
    return f"{group}/{of_pod.reference}" if of_pod.template else of_pod.name


def users_label(claim: str) -> str:
    """Key of a label by which the pods that share a claim are selected. The API server accepts no such key."""
    return f"ResourceClaim: {claim}"


def _users_selector(namespace: str, claim: str) -> PodSelector:
    labels = LabelSelector((Requirement(users_label(claim), Operator.IN, (USES,)),))
    return pod_selector(labels, (namespace,))


def _is_own(claim: Claim, use: DeviceUse) -> bool:
    """The allocation is for the permit of this pod, or stale, and does not decide where the pod may be placed."""
    return not use.node and claim.owner == use.uid and claim.is_allocated_to_owner


def _ids(use: DeviceUse) -> list[ClaimId]:
    return [(use.namespace, each.name) for each in use.claims if each.name]
