"""Waits of pods that are not bound, each with the reason of its condition PodScheduled=False.

Cluster Autoscaler and Karpenter add nodes for pods with the reason `Unschedulable`, of any scheduler, and ignore all
others. So only waits that more nodes would end have this reason (`nodes_help`); every other wait has one of its own.
`report/diagnosis` decides which wait applies. docs/autoscaling.md has the same table for users.
"""

from enum import Enum
from typing import Final, NamedTuple

UNSCHEDULABLE: Final = "Unschedulable"


class Wait(Enum):
    """Causes for which a pod waits: the condition's reason, and the rule in words as it applies to its gang and gang
    group.
    """

    def __init__(self, reason: str, rule: str) -> None:
        self.reason: Final = reason
        self.rule: Final = rule
        self.nodes_help: Final = reason == UNSCHEDULABLE
        """More nodes, of a kind that exists or could exist, would end the wait."""

    # more nodes would help
    CAPACITY = (UNSCHEDULABLE, "complete, tried, and short of capacity")
    MINIMUM_RESOURCES = (UNSCHEDULABLE, "complete; its declared minimum resources are not free in the cluster")
    # the user or a controller has to act
    UNDECLARED = ("GangNotDeclared", "its definition does not exist")
    INCOMPLETE = ("GangIncomplete", "fewer members exist than have to start together")
    GROUP_INCOMPLETE = ("GangGroupIncomplete", "another gang of its gang group is missing or not complete")
    DECLARATION = ("InvalidDeclaration", "its declaration is invalid, or its members contradict it")
    BLOCKED_POD = ("PodBlocked", "the pod is invalid, or waits for one of its volume claims")
    TIMED_OUT = ("GangTimedOut", "waited longer than its waiting-time")
    QUOTA = ("WaitingForQuota", "quota is not reserved for it")
    # its turn, or capacity that is on its way
    TURN = ("WaitingForTurn", "gave its places to an earlier gang, or was not tried yet")
    SHRUNK = ("GangShrunk", "preemption took surplus pods of it, and it does not grow again at once")
    EVICTED = ("WaitingForEviction", "its own pods are being evicted; it starts again when they are gone")
    DEALLOCATING = ("DeallocatingClaims", "a claim still has devices of an earlier placement, and is being deallocated")
    PREEMPTING = ("Preempting", "capacity is nominated for it; its victims are leaving")
    RESERVED = ("CapacityReserved", "starves; capacity is reserved for it that running pods free within 10 minutes")
    HOLDING = ("CapacityHeld", "the pod holds a reservation, and waits for the other members")
    STARTING = ("Starting", "permitted; the pod has a node and is being bound")
    BIND_FAILED = ("BindFailed", "permitted; the pod could not be bound yet")
    # nodes cannot help, as far as is known
    TOPOLOGY = ("TopologyUnsatisfied", "enough capacity is free, but not as its hard constraints demand")
    NAMED_NODES = ("NamedNodeUnavailable", "the pod may only run on nodes that it, or one of its volumes, names")
    VOLUMES = ("VolumesUnavailable", "no free volume of a class without provisioner")
    POD_AFFINITY = ("PodAffinityUnsatisfied", "no node has the pods that its required pod affinity names")
    # not known
    NOT_FOUND = ("NoPlacementFound", "placement found no place, and did not prove that there is none")
    FAILED = ("PlacementFailed", "placement could not be asked, or its answer could not be used")


_OF_PROBLEMS: Final = {wait.reason: wait for wait in (Wait.UNDECLARED, Wait.QUOTA)}


def of_problem(reason: str) -> Wait:
    """The wait for a blocking problem of a declaration that has this reason."""
    return _OF_PROBLEMS.get(reason, Wait.DECLARATION)


class Lack(NamedTuple):
    """Why a group fails the pre-enqueue check: the wait, and the reason in words."""

    wait: Wait
    message: str
