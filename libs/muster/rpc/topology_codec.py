"""Topology trees and constraints as messages and back, for Watch and Solve."""

import sys
from collections.abc import Callable
from typing import Any, Final

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import (
    LevelConstraint,
    LevelPolicy,
    ObjectReference,
    Problem,
    TopologyTree,
    TreeDomain,
    TreeLevel,
)

_POLICIES: Final = {policy.value: policy for policy in LevelPolicy}
_INT32_MAX: Final = 2**31 - 1
_intern = sys.intern


class UnknownPolicy(ValueError):
    """A constraint of a newer sender, which this release cannot satisfy."""

    def __init__(self, level: str, policy: int) -> None:
        super().__init__(f"the constraint on level {level!r} has policy {policy}, which this release does not know")


def encode_constraint(constraint: LevelConstraint) -> pb.LevelConstraint:
    """A constraint as a message. Users may write any number, so numbers are cut to int32."""
    policy: Any = constraint.policy
    return pb.LevelConstraint(
        level=constraint.level,
        policy=policy,
        hard=constraint.hard,
        count=min(constraint.count, _INT32_MAX),
        minimum=min(constraint.minimum, _INT32_MAX),
        maximum=min(constraint.maximum, _INT32_MAX),
        optional=constraint.optional,
    )


def decode_constraint(message: pb.LevelConstraint) -> LevelConstraint:
    """The constraint that a message carries. Raises UnknownPolicy."""
    policy = _POLICIES.get(message.policy)
    if policy is None:
        raise UnknownPolicy(message.level, message.policy)
    return LevelConstraint(
        _intern(message.level),
        policy,
        message.hard,
        message.count,
        message.minimum,
        message.maximum,
        message.optional,
    )


def encode_tree(
    tree: TopologyTree,
    encode_reference: Callable[[ObjectReference], pb.ObjectReference],
    encode_problem: Callable[[Problem], pb.Problem],
) -> pb.TopologyTree:
    """A tree as a message."""
    return pb.TopologyTree(
        name=tree.name,
        levels=[pb.TopologyLevel(name=level.name, label_key=level.label_key) for level in tree.levels],
        domains=[
            pb.TopologyDomain(name=domain.name, level=domain.level, parent=domain.parent + 1) for domain in tree.domains
        ],
        leaves=[pb.TopologyLeaf(node=node, domain=domain + 1) for node, domain in tree.leaves],
        default=tree.default,
        definition=None if tree.definition is None else encode_reference(tree.definition),
        problems=map(encode_problem, tree.problems),
    )


def decode_tree(
    message: pb.TopologyTree,
    decode_reference: Callable[[pb.ObjectReference], ObjectReference],
    decode_problem: Callable[[pb.Problem], Problem],
) -> TopologyTree:
    """The tree that a message carries."""
    return TopologyTree(
        _intern(message.name),
        tuple(TreeLevel(_intern(level.name), _intern(level.label_key)) for level in message.levels),
        tuple(TreeDomain(_intern(domain.name), domain.level, domain.parent - 1) for domain in message.domains),
        tuple((_intern(leaf.node), leaf.domain - 1) for leaf in message.leaves),
        message.default,
        decode_reference(message.definition) if message.HasField("definition") else None,
        tuple(map(decode_problem, message.problems)),
    )
