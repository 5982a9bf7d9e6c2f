"""What patches of objects come to: merge patches as RFC 7386 has them, and lists of conditions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import quoted

_MOST_CONDITIONS: Final = 256
"""Of an object; more are none of ours."""
_MESSAGE_CHARACTERS: Final = 32768  # as metav1.Condition has it
_METADATA: Final = frozenset({"labels", "annotations"})
_NEVER: Final = frozenset({"apiVersion", "kind"})


class BadPatch(ValueError):
    """A patch that cannot be carried out. The message quotes what is wrong with it, or with the object."""


def check_patch(patch: Mapping[str, Any], subresource: str, *, has_conditions: bool) -> None:
    """Raises BadPatch for what would change what the object is, or is not of the subresource."""
    metadata = patch.get("metadata", {})
    if not isinstance(metadata, dict) or not _METADATA.issuperset(metadata):
        raise BadPatch(f"its merge patch has metadata {quoted(str(metadata))}: only labels and annotations are written")
    if given := sorted(_NEVER.intersection(patch)):
        raise BadPatch(f"its merge patch sets {quoted(given[0])}, which is never written")
    if subresource and (strange := sorted(patch.keys() - {subresource})):
        raise BadPatch(f"its merge patch sets {quoted(strange[0])}, which is not in subresource {quoted(subresource)}")
    status = patch.get("status", {})
    if has_conditions and (not isinstance(status, dict) or "conditions" in status):
        raise BadPatch("its merge patch sets status.conditions, and so do its conditions")


def merged(target: Any, patch: Any) -> Any:
    """What a merge patch makes of a value."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def changed_conditions(before: Any, wanted: Iterable[pb.ObjectCondition], now: str) -> list[Any] | None:
    """The object's conditions with those that are wanted in place of the ones of their types; None: nothing changes.
    `now` is the time of transitions. Raises BadPatch.
    """
    if not isinstance(before, list) or len(before) > _MOST_CONDITIONS:
        raise BadPatch(f"its status.conditions is no list of up to {_MOST_CONDITIONS} conditions")
    after = list(before)
    for each in wanted:
        index = next((at for at, there in enumerate(after) if _type_of(there) == each.type), None)
        there = after[index] if index is not None else None
        if not _is_written(each, there):
            continue
        condition = _condition(each, there, now)
        if index is None:
            after.append(condition)
        else:
            after[index] = condition
    return after if after != before else None


def _type_of(condition: Any) -> object:
    return condition.get("type") if isinstance(condition, dict) else None


def _is_written(wanted: pb.ObjectCondition, there: Mapping[str, Any] | None) -> bool:
    match wanted.write_rule:
        case pb.ObjectCondition.WRITE_RULE_UNLESS_TRUE:
            return there is None or there.get("status") != "True"
        case pb.ObjectCondition.WRITE_RULE_IF_PRESENT:
            return there is not None
        case _:
            return True


def _condition(wanted: pb.ObjectCondition, there: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    condition: dict[str, Any] = {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message[:_MESSAGE_CHARACTERS],
        "lastTransitionTime": now,
    }
    if wanted.observed_generation:
        condition["observedGeneration"] = wanted.observed_generation
    if there is None:
        return condition
    if there.get("status") == wanted.status and isinstance(there.get("lastTransitionTime"), str):
        condition["lastTransitionTime"] = there["lastTransitionTime"]
    return {**there, **condition}
