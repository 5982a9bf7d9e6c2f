"""The cluster as cluster-state streams it: nodes, what their pods use, and topology trees. No I/O."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from muster.gangs.facts import Amounts, Batch, GangFacts, NodeFacts, PodFacts, TopologyTree
from muster.topology.ranks import Path
from muster.topology.trees import TreePaths

_MAX_TREES = 16
"""Trees of which the path of each node is known; the default one is the first."""


class Pod(Struct, gc=False):
    """A pod, as far as it is shown."""

    uid: str
    namespace: str
    name: str
    gang: str
    class_id: str
    node: str
    phase: str
    started_seconds: int
    seated: bool
    waits: bool
    """The pod is to be placed."""

    @property
    def owner(self) -> str:
        """Id of its gang; a pod of no gang is one by itself, as in the coordinator's answers."""
        return self.gang or f"plain/{self.namespace}/{self.name}"


class Usage(Struct, gc=False):
    """Pods of one namespace and what they request: those on nodes, and those of gangs that have none yet."""

    used: Counter[str]
    waiting: Counter[str]
    used_pods: int = 0
    waiting_pods: int = 0


class Cluster:
    """Nodes, pods, gangs' declarations and trees by name. Entries end with their objects, and those about changes when
    they are rendered (I11).
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeFacts] = {}
        self.pods: dict[str, Pod] = {}
        self.gangs: dict[str, GangFacts] = {}
        self.trees: dict[str, TopologyTree] = {}
        self.pod_problems: dict[str, tuple[Pod, str]] = {}
        """Pods that must not be placed, by uid, with the cause."""
        self.changed_nodes: dict[str, None] = {}
        self.changed_gangs: dict[str, None] = {}
        self.changed_problems: dict[str, None] = {}
        """Uids of pods."""
        self.changed_namespaces: dict[str, None] = {}
        self.trees_changed = False
        self.usage: dict[str, Usage] = {}
        """By namespace with such pods."""
        self._requests: dict[str, Amounts] = {}
        self._used: dict[str, Counter[str]] = {}
        self._pods_on: dict[str, dict[str, None]] = {}
        self._pod_of_name: dict[str, str] = {}
        self._paths: dict[str, TreePaths] = {}

    def apply(self, batch: Batch) -> None:
        """Apply a batch of the stream."""
        self._requests.update((each.id, each.requests) for each in batch.pod_classes)
        for node in batch.nodes:
            self.nodes[node.name] = node
            self.changed_nodes[node.name] = None
        for pod in batch.pods:
            self._put_pod(pod)
        for uid in batch.removed_pods:
            self._remove_pod(uid)
        for name in batch.removed_nodes:
            self.nodes.pop(name, None)
            self.changed_nodes[name] = None
        for gang in batch.gangs:
            self.gangs[gang.id] = gang
            self.changed_gangs[gang.id] = None
        for id_ in batch.removed_gangs:
            self.gangs.pop(id_, None)
            self.changed_gangs[id_] = None
        if batch.trees or batch.removed_trees:
            self._put_trees(batch.trees, batch.removed_trees)
        for class_id in batch.removed_pod_classes:
            self._requests.pop(class_id, None)

    def used(self, node: str) -> Counter[str]:
        """Requests of the pods on a node."""
        return self._used.get(node) or Counter()

    def requests(self, class_id: str) -> Amounts:
        """Requests of one pod of a class; empty if the class is not known."""
        return self._requests.get(class_id, ())

    def pods_on(self, node: str) -> list[Pod]:
        """Pods that use capacity of a node."""
        return [self.pods[uid] for uid in self._pods_on.get(node, ())]

    def gang_counts(self, node: str) -> Counter[str]:
        """Number of pods on a node by gang."""
        return Counter(pod.owner for pod in self.pods_on(node))

    def pod_named(self, name: str) -> Pod | None:
        """The pod "namespace/name"."""
        uid = self._pod_of_name.get(name)
        return self.pods.get(uid) if uid is not None else None

    def paths_of(self, node: NodeFacts) -> dict[str, Path]:
        """Domains of a node by tree, without trees that it is outside of."""
        paths = ((name, tree.path(node.name, node.labels)) for name, tree in self._paths.items())
        return {name: path for name, path in paths if path is not None}

    def _put_pod(self, facts: PodFacts) -> None:
        self._remove_pod(facts.uid)
        pod = Pod(
            uid=facts.uid,
            namespace=facts.namespace,
            name=facts.name,
            gang=facts.gang if facts.ours else "",
            class_id=facts.class_id,
            node=facts.node,
            phase=facts.phase.name.lower(),
            started_seconds=facts.started_seconds,
            seated=facts.seated,
            waits=facts.ours and not facts.node and not facts.phase.ended and not facts.deleting,
        )
        self.pods[pod.uid] = pod
        self._count(pod, 1)
        self._pod_of_name[f"{pod.namespace}/{pod.name}"] = pod.uid
        if pod.seated:
            self._use(pod, 1)
            self._pods_on.setdefault(pod.node, {})[pod.uid] = None
        if facts.problem:
            self.pod_problems[pod.uid] = (pod, facts.problem)
            self.changed_problems[pod.uid] = None

    def _remove_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._count(pod, -1)
        name = f"{pod.namespace}/{pod.name}"
        if self._pod_of_name.get(name) == uid:
            del self._pod_of_name[name]
        if pod.seated:
            self._use(pod, -1)
            here = self._pods_on[pod.node]
            del here[uid]
            if not here:
                del self._pods_on[pod.node]
                self._used.pop(pod.node, None)
        if self.pod_problems.pop(uid, None) is not None:
            self.changed_problems[uid] = None

    def _count(self, pod: Pod, times: int) -> None:
        """Count a pod in its namespace, or not any more."""
        if not pod.seated and not pod.waits:
            return
        usage = self.usage.setdefault(pod.namespace, Usage(Counter(), Counter()))
        amounts = usage.used if pod.seated else usage.waiting
        for resource, amount in self.requests(pod.class_id):
            amounts[resource] += times * amount
        usage.used_pods += times * pod.seated
        usage.waiting_pods += times * (not pod.seated)
        if not usage.used_pods and not usage.waiting_pods:
            del self.usage[pod.namespace]
        self.changed_namespaces[pod.namespace] = None

    def _use(self, pod: Pod, times: int) -> None:
        used = self._used.setdefault(pod.node, Counter())
        for resource, amount in self.requests(pod.class_id):
            used[resource] += times * amount
        self.changed_nodes[pod.node] = None

    def _put_trees(self, changed: Iterable[TopologyTree], removed: Iterable[str]) -> None:
        self.trees.update((tree.name, tree) for tree in changed)
        for name in removed:
            self.trees.pop(name, None)
        shown = sorted(self.trees.values(), key=lambda tree: (not tree.default, tree.name))[:_MAX_TREES]
        self._paths = {tree.name: TreePaths(tree) for tree in shown}
        self.trees_changed = True
        self.changed_nodes.update(dict.fromkeys(self.nodes))
