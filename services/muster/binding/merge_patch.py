"""Computes merge patches (RFC 7386) of objects and of their lists of conditions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import quoted

_MAX_CONDITIONS: Final = 256  # of an object
_MAX_MESSAGE_CHARACTERS: Final = 32768  # the limit of metav1.Condition
_PATCHABLE_METADATA: Final = frozenset({"labels", "annotations"})
_IMMUTABLE: Final = frozenset({"apiVersion", "kind"})


class BadPatch(ValueError):
    """An invalid patch, or an object that cannot be patched. The message quotes the offending value."""


def check_patch(patch: Mapping[str, Any], subresource: str, *, has_conditions: bool) -> None:
    """Check that a patch changes neither the object's identity nor fields outside its subresource. Raises BadPatch."""
    metadata = patch.get("metadata", {})
    if not isinstance(metadata, dict) or not _PATCHABLE_METADATA.issuperset(metadata):
        raise BadPatch(f"its merge patch has metadata {quoted(str(metadata))}: only labels and annotations are allowed")
    if given := sorted(_IMMUTABLE.intersection(patch)):
        raise BadPatch(f"its merge patch sets {quoted(given[0])}, which cannot be changed")
    if subresource and (strange := sorted(patch.keys() - {subresource})):
        raise BadPatch(f"its merge patch sets {quoted(strange[0])}, which is not in subresource {quoted(subresource)}")
    status = patch.get("status", {})
    if has_conditions and (not isinstance(status, dict) or "conditions" in status):
        raise BadPatch("its merge patch sets status.conditions, which its field `conditions` sets too")


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """The value after the merge patch."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), value)
    return result


def updated_conditions(before: Any, desired: Iterable[pb.ObjectCondition], now: str) -> list[Any] | None:
    """The object's conditions after replacing those of the wanted types; None if nothing changes.

    `now` is the time of transitions. Raises BadPatch.
    """
    if not isinstance(before, list) or len(before) > _MAX_CONDITIONS:
        raise BadPatch(f"its status.conditions is not a list of at most {_MAX_CONDITIONS} conditions")
    after = list(before)
    for each in desired:
        index = next((at for at, present in enumerate(after) if _type_of(present) == each.type), None)
        present = after[index] if index is not None else None
        if not _is_written(each, present):
            continue
        condition = _condition(each, present, now)
        if index is None:
            after.append(condition)
        else:
            after[index] = condition
    return after if after != before else None


def _type_of(condition: Any) -> object:
    return condition.get("type") if isinstance(condition, dict) else None


def _is_written(desired: pb.ObjectCondition, present: Mapping[str, Any] | None) -> bool:
    match desired.write_rule:
        case pb.ObjectCondition.WRITE_RULE_UNLESS_TRUE:
            return present is None or present.get("status") != "True"
        case pb.ObjectCondition.WRITE_RULE_IF_PRESENT:
            return present is not None
        case _:
            return True


def _condition(desired: pb.ObjectCondition, present: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    condition: dict[str, Any] = {
        "type": desired.type,
        "status": desired.status,
        "reason": desired.reason,
        "message": desired.message[:_MAX_MESSAGE_CHARACTERS],
        "lastTransitionTime": now,
    }
    if desired.observed_generation:
        condition["observedGeneration"] = desired.observed_generation
    if present is None:
        return condition
    if present.get("status") == desired.status and isinstance(present.get("lastTransitionTime"), str):
        condition["lastTransitionTime"] = present["lastTransitionTime"]
    return {**present, **condition}
