"""Generators of random clusters and requests: labels, taints, inter-pod rules, trees, constraints."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

from muster.conformance.builders import (
    HOSTNAME,
    ZONE,
    bound,
    cluster,
    factor,
    gang,
    gang_group,
    node,
    nominated,
    pack,
    partition,
    pod_class,
    potential_victim,
    reservation,
    single_gang,
    sizes,
    spread,
    tree,
)
from muster.conformance.cluster import Cluster
from muster.conformance.labels import labelled
from muster.gangs.facts import (
    HostPort,
    LevelConstraint,
    NodeFacts,
    PodClass,
    PodTerm,
    SpreadConstraint,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from muster.placement.v1 import placement_pb2 as pb

_KEYS: Final = (HOSTNAME, ZONE)
_SELECTORS: Final = ("red", "blue", "!red", "color=x", "color!=x", "color&color!=y", "red@dev", "blue@~live")
_LABELS: Final = ("red", "blue", "color=x", "color=y")


def random_cluster(random: Random, *, nodes: int, classes: int) -> Cluster:
    """Nodes in zones, some tainted or without a zone; classes with inter-pod rules; bound pods of them."""
    machines = [random_node(random, index) for index in range(nodes)]
    listed = list({each.id: each for each in (random_class(random) for _ in range(classes))}.values())
    pods = [bound(random.choice(listed), machine.name) for machine in machines if random.random() < 0.3]
    return cluster(machines, listed, pods)


def random_node(random: Random, index: int) -> NodeFacts:
    labels = {ZONE: random.choice("xyz")} if random.random() < 0.9 else {}
    taints = (Taint("t", "", TaintEffect.NO_SCHEDULE),) if random.random() < 0.15 else ()
    return node(f"n{index}", random.randint(1, 4), labels=labels, taints=taints)


def random_class(random: Random) -> PodClass:
    def term() -> PodTerm:
        return PodTerm(random.choice(_SELECTORS), random.choice(_KEYS))

    def sometimes(chance: float) -> bool:
        return random.random() < chance

    rule = SpreadConstraint(
        random.randint(1, 2),
        random.choice(_KEYS),
        random.choice(_SELECTORS),
        min_domains=random.choice((1, 1, 3)),
        honors_taints=sometimes(0.3),
        ignores_node_affinity=sometimes(0.3),
    )
    return pod_class(
        1,
        memory=random.randint(0, 3),
        label_set=_random_label_set(random),
        required_pod_anti_affinity=(term(),) if sometimes(0.3) else (),
        required_pod_affinity=(term(),) if sometimes(0.25) else (),
        spread=(rule,) if sometimes(0.3) else (),
        host_ports=(HostPort("TCP", random.choice(("0.0.0.0", "10.0.0.1")), 80),) if sometimes(0.15) else (),  # noqa: S104
        tolerations=(Toleration("t", TolerationOperator.EXISTS),) if sometimes(0.3) else (),
    )


def _random_label_set(random: Random) -> str:
    """Some labels, in one of three namespaces; none in a third of all cases."""
    names = random.sample(_LABELS[:2], random.randint(0, 2)) + random.sample(_LABELS[2:], random.randint(0, 1))
    namespace = random.choice(("", "", "dev/", "prod/"))
    return f"{namespace}{labelled(*names)}" if names else ""


def random_group(random: Random, classes: Sequence[PodClass], name: str) -> pb.GangGroup:
    roles = [(each, random.randint(1, 4)) for each in random.sample(classes, random.randint(1, min(2, len(classes))))]
    wanted = sum(count for _, count in roles)
    return single_gang(*roles, id=name, minimum=random.randint(1, wanted))


def random_gangs(random: Random, made: Cluster, name: str) -> pb.GangGroup:
    """One or two gangs with several roles and constraints, some with placed members."""
    classes, there = list(made.classes.values()), list(made.pods.values())
    gangs = []
    for index in range(random.choice((1, 1, 2))):
        some = random.sample(classes, random.randint(1, min(2, len(classes))))
        roles = [(each, random.randint(1, 5)) for each in some]
        wanted = sum(count for _, count in roles)
        pod = random.choice(there) if there and random.random() < 0.25 else None
        gangs.append(
            gang(
                *roles,
                id=f"{name}-{index}",
                minimum=random.choice((wanted, random.randint(1, wanted))),
                constraints=random_constraints(random, hard=0.5) if random.random() < 0.7 else (),
                placed=[] if pod is None else [(pod.node, made.classes[pod.class_id], 1)],
            )
        )
    return gang_group(*gangs, id=name, partial=random.random() < 0.2)


def random_request_fields(random: Random, made: Cluster, *, single_group: bool) -> dict[str, object]:
    """Nominated capacity, reservations, and potential victims: the bound pods, one gang per node."""
    names, classes = sorted(made.nodes), list(made.classes.values())
    parts: dict[str, object] = {}
    if random.random() < 0.2:
        parts["nominated"] = [nominated(random.choice(names), random.choice((0.5, 1, 2)))]
    if random.random() < 0.2:
        parts["reservations"] = [reservation(random.choice(names), random.choice(classes), "u1", "u2")]
    if single_group and random.random() < 0.4:
        there = Counter((pod.node, pod.class_id) for pod in made.seated())
        parts["potential_victims"] = [
            potential_victim(
                f"v-{on}", (on, made.classes[class_id], count), level=random.randint(0, 2), spare=random.randint(0, 2)
            )
            for (on, class_id), count in sorted(there.items())
        ]
    return parts


def random_tree(random: Random, classes: Sequence[PodClass], *, most: int) -> Cluster:
    """Two zones of up to two racks of up to two nodes, perhaps one node outside."""
    domains: dict[str, dict[str, dict[str, int]]] = {}
    names = iter("abcdefgh")
    for zone in range(random.randint(1, 2)):
        racks = {
            f"r{zone}{rack}": {next(names): random.randint(1, most) for _ in range(random.randint(1, 2))}
            for rack in range(random.randint(1, 2))
        }
        domains[f"z{zone}"] = racks
    machines = [node(name, cpu) for racks in domains.values() for rack in racks.values() for name, cpu in rack.items()]
    if random.random() < 0.2:
        machines.append(node("outside", most))
    return cluster(machines, classes, trees=[tree("zone rack", domains)])


def random_constraints(random: Random, *, hard: float) -> list[LevelConstraint]:
    """At most one shape and one size per level."""
    found = []
    for level in ("zone", "rack", "node"):
        if random.random() < 0.5:
            made = random.choice((pack, spread))(level, hard=random.random() < hard)
            found.append(partition(level, 2, hard=made.hard) if random.random() < 0.25 else made)
        if random.random() < 0.3:
            strict = random.random() < hard
            low = random.randint(1, 2)
            found.append(
                factor(level, 2, hard=strict)
                if random.random() < 0.5
                else sizes(level, low, low + random.randint(0, 3), hard=strict)
            )
    return found
