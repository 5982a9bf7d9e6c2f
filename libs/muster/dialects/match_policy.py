"""Reads the match policy, an annotation that Koordinator and lightweight gangs share."""

from collections.abc import Sequence
from typing import Any, Final

from muster.dialects.sources import Source, choose, warning
from muster.dialects.values import BadValue, quoted_value
from muster.gangs.facts import MatchPolicy, Problem

MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"

_POLICIES: Final = {policy.name.lower().replace("_", "-"): policy for policy in MatchPolicy}


def read_match_policy(sources: Sequence[Source], problems: list[Problem]) -> MatchPolicy:
    """Returns the first source's policy; once-satisfied without a source, and with a Warning if it is malformed."""
    default = MatchPolicy.ONCE_SATISFIED
    return choose(sources, _policy, default, problems, warning, "once-satisfied is used instead")


def _policy(text: Any) -> MatchPolicy:
    policy = _POLICIES.get(text)
    if policy is None:
        raise BadValue(f"{quoted_value(text)}, which is none of {', '.join(_POLICIES)}")
    return policy
