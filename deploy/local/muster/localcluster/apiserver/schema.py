"""Structural schemas of custom kinds: defaulting, pruning of unknown fields, validation.

Not implemented: CEL rules (x-kubernetes-validations), anyOf, oneOf, allOf, not, format.
"""

import copy
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from muster.localcluster.apiserver.status import Cause, invalid_value, not_supported, required, too_long, too_many
from muster.localcluster.apiserver.store import Object

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_OF_EVERY_OBJECT: Final = ("apiVersion", "kind", "metadata")
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def prune(schema: Object, value: Any, path: str = "", *, embedded: bool = True) -> Iterator[str]:
    """Prune unknown fields, in place; yields their paths. `embedded`: the value is a whole object."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        for name in list(value):
            at = f"{path}.{name}" if path else name
            if embedded and name in _OF_EVERY_OBJECT:
                continue
            if name in properties:
                inner = properties[name]
                yield from prune(inner, value[name], at, embedded=inner.get("x-kubernetes-embedded-resource", False))
            elif isinstance(additional, dict):
                yield from prune(additional, value[name], at, embedded=False)
            elif not additional and not schema.get(_PRESERVE):
                del value[name]
                yield at
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from prune(schema["items"], item, f"{path}[{index}]", embedded=False)


def fill_defaults(schema: Object, value: Any) -> None:
    """Set defaults, in place."""
    if isinstance(value, dict):
        for name, inner in (schema.get("properties") or {}).items():
            if "default" in inner and (name not in value or (value[name] is None and not inner.get("nullable"))):
                value[name] = copy.deepcopy(inner["default"])
            elif name in value and value[name] is None and not inner.get("nullable"):
                del value[name]
            if name in value:
                fill_defaults(inner, value[name])
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for name in value.keys() - (schema.get("properties") or {}).keys():
                fill_defaults(additional, value[name])
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            fill_defaults(schema["items"], item)


def schema_causes(schema: Object, value: Any, path: str = "") -> Iterator[Cause]:
    """Problems of a value, with the texts of kube-apiserver."""
    if value is None and schema.get("nullable"):
        return
    if not _has_type(schema, value):
        found = _type_of(value)
        expected = "integer,string" if schema.get(_INT_OR_STRING) else schema["type"]
        yield Cause(
            "FieldValueTypeInvalid",
            f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"',
            path,
        )
        return
    if (enum := schema.get("enum")) is not None and value not in enum:
        yield not_supported(path, value, map(str, enum))
    if isinstance(value, bool):
        return
    if isinstance(value, dict):
        yield from _object_causes(schema, value, path)
    elif isinstance(value, list):
        yield from _array_causes(schema, value, path)
    elif isinstance(value, str):
        yield from _string_causes(schema, value, path)
    elif isinstance(value, int | float):
        yield from _number_causes(schema, value, path)


def _has_type(schema: Object, value: Any) -> bool:
    if schema.get(_INT_OR_STRING):
        return isinstance(value, int | str) and not isinstance(value, bool)
    expected = schema.get("type")
    if expected not in _TYPES:
        return True
    if isinstance(value, bool) and expected != "boolean":
        return False
    if expected == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[expected])


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return next(name for name, types in _TYPES.items() if isinstance(value, types))


def _object_causes(schema: Object, value: Object, path: str) -> Iterator[Cause]:
    prefix = f"{path}." if path else ""
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{prefix}{name}")
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, member in value.items():
        if name in properties:
            yield from schema_causes(properties[name], member, f"{prefix}{name}")
        elif isinstance(additional, dict):
            yield from schema_causes(additional, member, f"{prefix}{name}")
    maximum = schema.get("maxProperties")
    if maximum is not None and len(value) > maximum:
        yield too_many(path, len(value), maximum)
    if len(value) < schema.get("minProperties", 0):
        detail = f"{path} in body should have at least {schema['minProperties']} properties"
        yield invalid_value(path, len(value), detail)


def _array_causes(schema: Object, value: list[Any], path: str) -> Iterator[Cause]:
    if isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from schema_causes(schema["items"], item, f"{path}[{index}]")
    maximum = schema.get("maxItems")
    if maximum is not None and len(value) > maximum:
        yield too_many(path, len(value), maximum)
    if len(value) < schema.get("minItems", 0):
        detail = f"{path} in body should have at least {schema['minItems']} items"
        yield invalid_value(path, len(value), detail)


def _string_causes(schema: Object, value: str, path: str) -> Iterator[Cause]:
    maximum = schema.get("maxLength")
    if maximum is not None and len(value) > maximum:
        yield too_long(path, maximum)
    if len(value) < schema.get("minLength", 0):
        yield invalid_value(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    pattern = schema.get("pattern")
    if pattern and _compiled(pattern).search(value) is None:
        yield invalid_value(path, value, f"{path} in body should match '{pattern}'")


def _number_causes(schema: Object, value: float, path: str) -> Iterator[Cause]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and schema.get("exclusiveMinimum") and value <= low:
        yield invalid_value(path, value, f"{path} in body should be greater than {low}")
    elif low is not None and value < low:
        yield invalid_value(path, value, f"{path} in body should be greater than or equal to {low}")
    if high is not None and schema.get("exclusiveMaximum") and value >= high:
        yield invalid_value(path, value, f"{path} in body should be less than {high}")
    elif high is not None and value > high:
        yield invalid_value(path, value, f"{path} in body should be less than or equal to {high}")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
