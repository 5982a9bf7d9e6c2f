"""Why a gang, or what is left of it, is not running: one sentence that is true now (I10)."""

from muster.coordinator.core.model import Gang
from muster.gangs.facts import GangMode, Severity

NON_STRICT_NOTE = "mode NonStrict is not supported yet: the gang is treated as Strict"


def reason(gang: Gang) -> str:
    """In the user's terms; empty when nothing is in its way."""
    group = gang.group
    if gang.permitted:
        if not gang.waiting:
            return _not_bound_yet(gang)
        if gang.lost:
            return f"{len(gang.lost)} of {gang.members} pods lost their node and are to be placed again{_because(gang)}"
        if group.gathering is not None:
            later = "1 later pod waits" if len(gang.waiting) == 1 else f"{len(gang.waiting)} later pods wait"
            return f"gang {gang.label} runs; {later}: {group.gathering}"
        because = _because(gang)
        return f"gang {gang.label} runs; {len(gang.waiting)} more of its pods cannot start{because}" if because else ""
    name = f"{'pod' if gang.plain else 'gang'} {gang.label}"
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
    if facts.mode is GangMode.NON_STRICT:
        notes.append(NON_STRICT_NOTE)
    return notes


def _not_bound_yet(gang: Gang) -> str:
    if not gang.seats or not gang.bind_trouble:
        return ""
    return f"gang {gang.label} starts; {len(gang.seats)} of its pods are not bound yet: {gang.bind_trouble}"


def _because(gang: Gang) -> str:
    group = gang.group
    if group.trouble:
        return f": {group.trouble}"
    explanation = group.explanation
    if explanation is None:
        return ""
    other = f"gang {_label(explanation.gang)}: " if explanation.gang not in ("", gang.id) else ""
    return f": {other}{explanation.summary}"


def _label(gang_id: str) -> str:
    return gang_id.split("/", 1)[-1]
