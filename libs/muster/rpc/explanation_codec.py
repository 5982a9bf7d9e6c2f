"""Explanations between their values and muster.placement.v1: placement gives them, the coordinator hands them on."""

from typing import Final

from muster.clusterstate.v1 import clusterstate_pb2 as state_pb
from muster.gangs.solve import Explanation
from muster.placement.v1 import placement_pb2 as pb

_LONGEST_SUMMARY: Final = 1024  # an implementation may be anybody's; this is what a condition can hold


def encode_explanation(explanation: Explanation) -> pb.Explanation:
    """The message."""
    return pb.Explanation(
        summary=explanation.summary,
        gang=explanation.gang,
        class_id=explanation.class_id,
        fit=explanation.fit,
        needed=explanation.needed,
        filtered_nodes=[pb.FilteredNodes(reason=reason, nodes=nodes) for reason, nodes in explanation.filtered_nodes],
        short_by=[state_pb.ResourceAmount(name=name, amount=amount) for name, amount in explanation.short_by],
        best_domain=explanation.best_domain,
        best_domain_fit=explanation.best_domain_fit,
        remedy=explanation.remedy,
    )


def decode_explanation(message: pb.Explanation) -> Explanation:
    """The value; sentences that are too long are cut."""
    return Explanation(
        summary=message.summary[:_LONGEST_SUMMARY],
        gang=message.gang,
        class_id=message.class_id,
        fit=message.fit,
        needed=message.needed,
        filtered_nodes=tuple((lost.reason, lost.nodes) for lost in message.filtered_nodes),
        short_by=tuple((amount.name, amount.amount) for amount in message.short_by),
        best_domain=message.best_domain[:_LONGEST_SUMMARY],
        best_domain_fit=message.best_domain_fit,
        remedy=message.remedy[:_LONGEST_SUMMARY],
    )
