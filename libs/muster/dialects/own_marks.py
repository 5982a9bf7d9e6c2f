"""Muster's own annotations, which pods and definitions of any dialect may carry: they say what no dialect can say.

A pod that has no other marks than these is a plain pod.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from muster.dialects.declared import Source, chosen, from_pods, unless_empty, warning
from muster.dialects.marks import Definition, MarkSet, Pairs
from muster.dialects.values import LONGEST_DURATION, BadValue, duration_or_seconds, shown
from muster.gangs.facts import Problem, RepairPolicy
from muster.gangs.quoting import quoted

_PREFIX: Final = "muster.dev/"
EXPECTED_DURATION: Final = _PREFIX + "expected-duration"
REPAIR_POLICY: Final = _PREFIX + "repair-policy"

ANNOTATIONS: Final = frozenset({EXPECTED_DURATION, REPAIR_POLICY})

_REPAIR_POLICIES: Final = {"Wait": RepairPolicy.WAIT, "Evict": RepairPolicy.EVICT}


def expected_seconds(annotations: Mapping[str, str] | None) -> float:
    """How long a pod is expected to run, by its annotation; 0 if that does not say, in words that can be read."""
    text = annotations.get(EXPECTED_DURATION) if annotations else None
    if not text:
        return 0.0
    return _expected(text) if len(text) <= LONGEST_DURATION else 0.0


def of_gang(marks: Pairs) -> Pairs:
    """Marks of a pod without what says nothing of its gang, such as a duration that can be read.

    Every pod may have a duration of its own; a gang's pods must not differ in marks by that.
    """
    return tuple([(key, value) for key, value in marks if key != EXPECTED_DURATION or _is_malformed(value)])


def read_repair_policy(definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]) -> RepairPolicy:
    """What the gang's pods, oldest first, or its definition say; Wait if none does, with a Warning if malformed."""
    sources, differences = from_pods(pods, unless_empty, REPAIR_POLICY, f"annotation {REPAIR_POLICY}")
    problems += differences
    if definition is not None and (value := definition.annotations.get(REPAIR_POLICY)):
        defined = f"{definition.kind} {quoted(f'{definition.namespace}/{definition.name}')}"
        sources.append(Source(value, f"annotation {REPAIR_POLICY} of {defined}"))
    return chosen(sources, _repair_policy, RepairPolicy.WAIT, problems, warning, "Wait counts instead")


def check_expected_durations(pods: Sequence[MarkSet], problems: list[Problem]) -> None:
    """A Warning about the first of the pods whose duration cannot be read."""
    for each in pods:
        text = each.marks.annotation(EXPECTED_DURATION)
        try:
            if text:
                duration_or_seconds(text)
        except BadValue as error:
            where = f"annotation {EXPECTED_DURATION} of pod {quoted(each.oldest.name)}"
            problems.append(warning(f"{where} is {error}: only activeDeadlineSeconds counts, where the pod has it"))
            return


@lru_cache(maxsize=4096)
def _expected(text: str) -> float:
    try:
        return duration_or_seconds(text)
    except BadValue:
        return 0.0


def _is_malformed(text: str) -> bool:
    return bool(text) and (len(text) > LONGEST_DURATION or not _expected(text))


def _repair_policy(text: Any) -> RepairPolicy:
    policy = _REPAIR_POLICIES.get(text)
    if policy is None:
        raise BadValue(f"{shown(text)}, which is neither Wait nor Evict")
    return policy
