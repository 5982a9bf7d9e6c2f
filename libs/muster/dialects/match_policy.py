"""The match policy: an annotation that Koordinator and lightweight gangs share."""

from collections.abc import Sequence
from typing import Any, Final

from muster.dialects.declared import Source, chosen, warning
from muster.dialects.values import BadValue, shown
from muster.gangs.facts import MatchPolicy, Problem

MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"

_POLICIES: Final = {policy.name.lower().replace("_", "-"): policy for policy in MatchPolicy}


def read_match_policy(sources: Sequence[Source], problems: list[Problem]) -> MatchPolicy:
    """The policy that the first source names; once-satisfied if none does, with a Warning if it is malformed."""
    default = MatchPolicy.ONCE_SATISFIED
    return chosen(sources, _policy, default, problems, warning, "once-satisfied counts instead")


def _policy(text: Any) -> MatchPolicy:
    policy = _POLICIES.get(text)
    if policy is None:
        raise BadValue(f"{shown(text)}, which is none of {', '.join(_POLICIES)}")
    return policy
