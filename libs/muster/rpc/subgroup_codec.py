"""Policies for the subgroups of a gang, and the sets that contain it, as messages and back."""

import sys

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import CompositeFacts, SubgroupPolicy
from muster.rpc.selector_codec import decode_labels, fill_labels
from muster.rpc.topology_codec import decode_constraint, encode_constraint


def encode_subgroups(policy: SubgroupPolicy) -> pb.SubgroupPolicy:
    """A policy as a message."""
    message = pb.SubgroupPolicy(
        name=policy.name,
        keys=policy.keys,
        size=policy.size,
        minimum=policy.minimum,
        tree=policy.tree,
        constraints=map(encode_constraint, policy.constraints),
    )
    fill_labels(message.labels, policy.labels)
    return message


def decode_subgroups(message: pb.SubgroupPolicy) -> SubgroupPolicy:
    """The policy that a message carries. Raises UnknownPolicy for a constraint."""
    return SubgroupPolicy(
        sys.intern(message.name),
        decode_labels(message.labels),
        tuple(map(sys.intern, message.keys)),
        max(1, message.size),
        message.minimum,
        sys.intern(message.tree),
        tuple(map(decode_constraint, message.constraints)),
    )


def encode_composite(composite: CompositeFacts) -> pb.CompositeFacts:
    """A set of gangs as a message."""
    return pb.CompositeFacts(name=composite.name, tree=composite.tree, level=composite.level, minimum=composite.minimum)


def decode_composite(message: pb.CompositeFacts, gangs: int) -> CompositeFacts:
    """The set of gangs that a message carries; `gangs`: their number, which a server of an earlier version means."""
    tree, level = sys.intern(message.tree), sys.intern(message.level)
    return CompositeFacts(sys.intern(message.name), tree, level, message.minimum or max(1, gangs))
