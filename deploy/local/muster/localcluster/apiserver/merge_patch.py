"""JSON merge patch (RFC 7386)."""

from typing import Any

from muster.localcluster.apiserver.store import Object


def apply_merge_patch(current: Object, patch: Object) -> Object:
    """`current` with the patch merged in: null removes, objects are merged, all else replaces."""
    merged = dict(current)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            former = merged.get(name)
            merged[name] = apply_merge_patch(former if isinstance(former, dict) else {}, value)
        else:
            merged[name] = value
    return merged


def without_nulls(value: Any) -> Any:
    """The value without null members, at any depth of objects."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return value
