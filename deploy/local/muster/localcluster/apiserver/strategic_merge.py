"""Strategic merge patch: like a merge patch, but lists of known fields are merged by a key of their elements."""

from typing import Any, Final

from muster.localcluster.apiserver.status import bad_request
from muster.localcluster.apiserver.store import Object

_KEYS: Final = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "reservedFor": "uid",
    "resourceClaimStatuses": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Merge key of list fields. Other lists are replaced (tolerations, taints, ...)."""

_PRIMITIVE_SETS: Final = ("finalizers", "podCIDRs")
"""Lists of strings that are merged as sets."""

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_ORDER: Final = "$setElementOrder/"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_RETAIN: Final = "$retainKeys"
_DIRECTIVE: Final = "$patch"


def apply_strategic_merge(current: Object, patch: Object, inside: str = "") -> Object:
    """`current` with the patch merged in. `inside`: the field that contains it. Raises StatusError 400."""
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if directive == "delete":
        return {}
    retained = patch.get(_RETAIN)
    merged = {name: value for name, value in current.items() if retained is None or name in retained}
    for name, value in patch.items():
        if name.startswith(_DELETE_PRIMITIVES):
            field = name.removeprefix(_DELETE_PRIMITIVES)
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif name.startswith(_ORDER):
            field = name.removeprefix(_ORDER)
            if field not in patch and isinstance(merged.get(field), list):
                merged[field] = _merged_list(field, inside, merged[field], [], value)
        elif not name.startswith("$"):
            _merge_field(merged, name, value, patch.get(_ORDER + name), inside)
    return merged


def _merge_field(merged: Object, name: str, value: Any, order: Any, inside: str) -> None:
    previous = merged.get(name)
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, dict):
        merged[name] = apply_strategic_merge(previous if isinstance(previous, dict) else {}, value, name)
    elif isinstance(value, list):
        merged[name] = _merged_list(name, inside, previous if isinstance(previous, list) else [], value, order)
    else:
        merged[name] = value


def _merged_list(field: str, inside: str, previous: list[Any], patch: list[Any], order: Any) -> list[Any]:
    if field in _PRIMITIVE_SETS:
        return previous + [item for item in patch if item not in previous]
    key = _key_of(field, inside)
    if key is None:
        return [without_nulls(item) for item in patch]
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if _DIRECTIVE not in item]
    return _merged_by_key(field, key, previous, patch, order)


def _merged_by_key(field: str, key: str, previous: list[Any], patch: list[Any], order: Any) -> list[Any]:
    elements: dict[Any, Any] = {item.get(key): item for item in previous}
    place = {value: index for index, value in enumerate(elements)}
    named: list[Any] = []
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f'map: {item} does not contain declared merge key: {key} (list "{field}")')
        value = item[key]
        if item.get(_DIRECTIVE) == "delete":
            elements.pop(value, None)
            continue
        elements[value] = apply_strategic_merge(elements.get(value, {}), item, field)
        named.append(value)
    if isinstance(order, list):
        named = [item[key] for item in order if item.get(key) in elements]
    named = list(dict.fromkeys(named))
    unordered = [value for value in elements if value not in named]
    return [elements[value] for value in _interleaved(named, unordered, place)]


def _interleaved(named: list[Any], unordered: list[Any], place: dict[Any, int]) -> list[Any]:
    """Elements of the patch in its order, others in the server's order, which wins in case of conflict."""
    result: list[Any] = []
    remaining = list(unordered)
    for value in named:
        while remaining and value in place and place[remaining[0]] < place[value]:
            result.append(remaining.pop(0))
        result.append(value)
    return result + remaining


def _key_of(field: str, inside: str) -> str | None:
    if field == "ports":
        return "containerPort" if inside in _CONTAINERS else "port"
    return _KEYS.get(field)


def without_nulls(value: Any) -> Any:
    """The value without null members, at any depth of objects."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return value
