"""Members that a gang lacks: pods that exist and do not count, how to let them count, and why none are created."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from muster.coordinator.core.gang.gang import Gang
from muster.gangs.facts import OTHER_SCHEDULER

_QUOTA: Final = "exceeded quota"
_MOST_PROBLEMS: Final = 2
"""Pods with a problem of their own that are named."""


class Uncounted(NamedTuple):
    """Numbers of such pods by cause; a pod counts under the first that applies."""

    ended: int
    deleting: int
    gated: int
    problems: tuple[tuple[str, str], ...]
    """Names and problems of pods with a problem of their own, by name."""
    timed_out: int
    other_scheduler: str
    """The warning about pods with the gang's marks that another scheduler places; "" if there are none."""

    @property
    def existing(self) -> int:
        """Pods that will count without being created again."""
        return self.gated + len(self.problems) + self.timed_out

    def in_words(self) -> list[str]:
        """Each cause, with the number of pods."""
        counts = (
            (self.gated, "gated"),
            (self.timed_out, "timed out"),
            (self.deleting, "being deleted"),
            (self.ended, "ended"),
        )
        states = ", ".join(f"{count} {state}" for count, state in counts if count)
        named = [f"pod {name}: {problem}" for name, problem in self.problems[:_MOST_PROBLEMS]]
        if more := len(self.problems) - len(named):
            named.append(
                f"{_pods(more, more=True)} with {'a problem of its own' if more == 1 else 'problems of their own'}"
            )
        others = [self.other_scheduler] if self.other_scheduler else []
        return [*([states] if states else []), *named, *others]

    def remedies(self) -> Iterator[str]:
        """Changes with which the existing pods count."""
        if self.gated:
            yield (
                f"remove the scheduling gates of {_pods(self.gated)}, or have the controller remove them that set them"
            )
        for name, problem in self.problems[:_MOST_PROBLEMS]:
            yield f"resolve the problem of pod {name}: {problem}"
        if (more := len(self.problems) - _MOST_PROBLEMS) > 0:
            yield f"resolve the problems of {more} more {'pod' if more == 1 else 'pods'}; their conditions name them"


def uncounted(gang: Gang) -> Uncounted:
    """The pods of a gang that do not count."""
    ended = deleting = gated = timed_out = 0
    problems = []
    for pod in gang.pods.values() if len(gang.pods) != gang.member_count else ():
        if pod.phase.ended:
            ended += 1
        elif pod.deleting:
            deleting += 1
        elif pod.gated:
            gated += 1
        elif pod.uid in gang.invalid:
            problems.append((pod.name, pod.problem))
        elif pod.uid in gang.hold.marked or pod.uid in gang.hold.marking:
            timed_out += 1
    warned = gang.facts.problems if gang.facts is not None else ()
    others = next((each.message for each in warned if each.reason == OTHER_SCHEDULER), "")
    return Uncounted(ended, deleting, gated, tuple(sorted(problems)), timed_out, others)


def missing_members(gang: Gang) -> list[str]:
    """Changes with which so many members count that the gang is tried; empty if as many count."""
    facts, found = gang.facts, uncounted(gang)
    absent = gang.required - gang.counted
    if facts is None or absent <= 0:
        return []
    changes = list(found.remedies())
    absent -= found.existing
    if found.deleting and absent > 0:
        again = min(found.deleting, absent)
        changes.append(f"{_pods(again)} created again when those being deleted are gone")
        absent -= again
    if absent > 0 and found.other_scheduler:
        changes.append(f"{_pods(absent, more=True)} with a schedulerName of Muster")
    elif absent > 0:
        changes.append(_pods(absent, more=True))
    if not found.existing and (reached := facts.minimum - gang.required + gang.counted) > 0:
        changes[-1] += f", or a minimum of at most {reached}"
    return changes


def not_created(gang: Gang) -> str:
    """Why a controller creates no more members, to be added to how many exist; empty: it is not known.

    Readers of other namespaces see the reason of a gang group with gangs there, and are not told why.
    """
    failure = gang.facts.creation_failure if gang.facts is not None else ""
    if not failure:
        return ""
    namespaces = {each.facts.namespace for each in gang.group.gangs if each.facts is not None}
    if len(namespaces) > 1:
        return "; its controller cannot create more pods; events of its namespace name the reason"
    remedy = "; raise the ResourceQuota, or lower what its pods request" if _QUOTA in failure else ""
    return f"; its controller cannot create more pods: {failure}{remedy}"


def _pods(count: int, *, more: bool = False) -> str:
    return f"{count}{' more' if more else ''} {'pod' if count == 1 else 'pods'}"
