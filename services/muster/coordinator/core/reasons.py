"""Why a gang, or what is left of it, is not running: one sentence that is true now (I10)."""

from muster.coordinator.core.model import Gang
from muster.dialects.registry import timeout_annotations
from muster.gangs.facts import GangMode, Severity


def reason(gang: Gang) -> str:
    """In the user's terms; empty when nothing is in its way."""
    group = gang.group
    if gang.permitted:
        if not gang.waiting:
            return _not_bound_yet(gang) or _marked(gang)
        if gang.lost:
            return f"{len(gang.lost)} of {gang.members} pods lost their node and are to be placed again{_because(gang)}"
        if group.gathering is not None:
            later = "1 later pod waits" if len(gang.waiting) == 1 else f"{len(gang.waiting)} later pods wait"
            return f"gang {gang.label} runs; {later}: {group.gathering}"
        because = _because(gang)
        return f"gang {gang.label} runs; {len(gang.waiting)} more of its pods cannot start{because}" if because else ""
    name = f"{'pod' if gang.plain else 'gang'} {gang.label}"
    if gang.seats and group.persisting is None:
        return _holding(gang)
    if group.gathering is not None:
        return f"{name} waits: {group.gathering}"
    if not gang.waiting or group.persisting is not None:
        return ""
    because = _because(gang)
    return f"{name} cannot start{because}" if because else ""


def warnings(gang: Gang) -> list[str]:
    """What is wrong with the declaration although a default is used."""
    facts = gang.facts
    if facts is None:
        return []
    notes = [problem.message for problem in facts.problems if problem.severity is Severity.WARNING]
    if facts.mode is GangMode.NON_STRICT and not gang.permitted and not gang.group.accumulates:
        strict = next(other for other in gang.group.gangs if other.facts and other.facts.mode is GangMode.STRICT)
        notes.append(f"mode NonStrict has no effect: gang {strict.label} of its group is Strict, and so the group is")
    return notes


def _holding(gang: Gang) -> str:
    lacking, minimum = max(0, gang.lacking), gang.facts.minimum if gang.facts is not None else 0
    have = f"gang {gang.label} waits with {minimum - lacking} of {minimum} places"
    if gang.group.gathering is not None:
        return f"{have}: {gang.group.gathering}"
    return f"{have} for {'the rest' if lacking else 'its group'}{_because(gang)}"


def _not_bound_yet(gang: Gang) -> str:
    if not gang.seats or not gang.bind_trouble:
        return ""
    return f"gang {gang.label} starts; {len(gang.seats)} of its pods are not bound yet: {gang.bind_trouble}"


def _marked(gang: Gang) -> str:
    if not gang.marked:
        return ""
    mark = next(iter(timeout_annotations(gang.id, True)), "that says so")
    count = len(gang.marked)
    return f"gang {gang.label} runs; {count} more of its pods are not tried while they bear the annotation {mark}"


def _because(gang: Gang) -> str:
    group = gang.group
    if group.trouble:
        return f": {group.trouble}"
    explanation = group.explanation
    if explanation is None:
        return ""
    other = f"gang {_label(explanation.gang)}: " if explanation.gang not in ("", gang.id) else ""
    return f": {other}{explanation.summary}{f'; {group.no_way}' if group.no_way else ''}"


def _label(gang_id: str) -> str:
    return gang_id.split("/", 1)[-1]
