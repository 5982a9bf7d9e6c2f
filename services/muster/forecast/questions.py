"""Questions as users ask them: gangs that may be submitted, and what is different before."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from muster.forecast.alternatives import changed_by, with_nodes_like, without_gang, without_node
from muster.forecast.whatif import Question
from muster.gangs.facts import Batch
from muster.gangs.quoting import quoted

MAX_ADDED_NODES = 10_000


class BadQuestion(ValueError):
    """The question names what does not exist, or has no gangs. The message quotes it."""


@dataclass(frozen=True)
class Asked:
    """The facts of gangs, and the changes before them: gangs and nodes that are gone, and nodes that are added, which
    are like an existing one.
    """

    added: Batch
    without_gangs: tuple[str, ...] = ()
    without_nodes: tuple[str, ...] = ()
    add_nodes: int = 0
    like: str = ""
    existing: str = ""
    """The name of a gang of the cluster, which is asked about instead of `added`."""

    def question(self, cluster: Batch) -> tuple[Question, list[str]]:
        """The question about this cluster, and the ids of existing gangs that those of the question replace. Raises
        BadQuestion.
        """
        if self.existing:
            return replace(self, existing="", added=_existing(cluster, self.existing)).question(cluster)
        self._check_pods(cluster)
        self._check_nodes(cluster)
        before = [without_gang(cluster, _found(cluster, name)) for name in self.without_gangs]
        before += [without_node(cluster, name) for name in self.without_nodes]
        if self.add_nodes:
            before.append(with_nodes_like(cluster, self.like, self.add_nodes))
        replaced, gangs = _replaced(changed_by(cluster, before) if before else cluster, self.added)
        return Question(self.added, tuple(before), replaced), gangs

    def _check_pods(self, cluster: Batch) -> None:
        if not self.added.pods:
            raise BadQuestion("there are no pods in the question")
        classes = {each.id for each in (*self.added.pod_classes, *cluster.pod_classes)}
        for pod in self.added.pods:
            name = quoted(f"{pod.namespace}/{pod.name}")
            if pod.class_id not in classes:
                raise BadQuestion(f"pod {name}: there is no pod class {quoted(pod.class_id)}")
            if pod.node:
                raise BadQuestion(f"pod {name} is on node {quoted(pod.node)} already: ask about pods that wait")

    def _check_nodes(self, cluster: Batch) -> None:
        nodes = {node.name for node in cluster.nodes}
        for name in (*self.without_nodes, *([self.like] if self.like else [])):
            if name not in nodes:
                raise BadQuestion(f"there is no node {quoted(name)}")
        if self.add_nodes and not self.like:
            raise BadQuestion("nodes can be added that are like an existing one: name it")
        if not 0 <= self.add_nodes <= MAX_ADDED_NODES:
            raise BadQuestion(f"{self.add_nodes} nodes cannot be added: at most {MAX_ADDED_NODES}")


def _found(cluster: Batch, name: str) -> str:
    """The id of the only gang with this name, namespace and name, or id."""
    known = {each.id for each in cluster.gangs} | {pod.gang for pod in cluster.pods if pod.gang}
    matching = sorted(id_ for id_ in known if name in (id_, id_.partition("/")[2]) or id_.endswith(f"/{name}"))
    if len(matching) == 1:
        return matching[0]
    found = f"several gangs have this name: {', '.join(matching[:10])}" if matching else "there is no such gang"
    raise BadQuestion(f"gang {quoted(name)}: {found}")


def _existing(cluster: Batch, name: str) -> Batch:
    """A gang that has not started, and its pods. Raises BadQuestion."""
    single = tuple(pod for pod in cluster.pods if not pod.gang and f"plain/{pod.namespace}/{pod.name}" == name)
    id_ = name if single else _found(cluster, name)
    members = single or tuple(pod for pod in cluster.pods if pod.gang == id_)
    pods = tuple(pod for pod in members if not (pod.deleting or pod.phase.ended))
    if not pods or any(pod.node for pod in pods):
        raise BadQuestion(f"gang {quoted(name)} {'runs already' if pods else 'has no pods that wait'}")
    return Batch(gangs=tuple(gang for gang in cluster.gangs if gang.id == id_), pods=pods)


def _replaced(cluster: Batch, added: Batch) -> tuple[Batch, list[str]]:
    """The removal of gangs and pods that have names of the question, and the ids of these gangs."""
    names = {(pod.namespace, pod.name) for pod in added.pods}
    asked = {gang.id for gang in added.gangs}
    gangs = sorted(asked.intersection(pod.gang for pod in cluster.pods if pod.gang))
    pods = [pod.uid for pod in cluster.pods if pod.gang in asked or (pod.namespace, pod.name) in names]
    return Batch(removed_pods=tuple(pods), removed_gangs=_known(cluster, gangs)), gangs


def _known(cluster: Batch, gangs: Iterable[str]) -> tuple[str, ...]:
    known = {each.id for each in cluster.gangs}
    return tuple(gang for gang in gangs if gang in known)
