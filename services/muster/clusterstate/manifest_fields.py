"""Fields of manifests that nothing has validated: a value of another type is an error that names its field."""

from collections.abc import Mapping
from typing import Any

from muster.gangs.quoting import quoted

Manifest = Mapping[str, Any]


class BadWorkload(ValueError):
    """A manifest of which the pods cannot be told. The message names it, quotes the value and says what is expected."""


def name_of(manifest: Manifest) -> str:
    """Kind and name, for messages."""
    metadata = manifest.get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
    return f"{_brief(manifest.get('kind') or 'an object')} {_brief(name)}".strip()


def mapping_in(owner: Manifest, field: str, manifest: Manifest) -> Mapping[str, Any]:
    """A field that has fields; empty if it is absent. `manifest` is named in the message. Raises BadWorkload."""
    value = owner.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadWorkload(f"{name_of(manifest)}: {field} {quoted(_brief(value))} is not an object")
    return value


def objects_in(owner: Manifest, field: str, manifest: Manifest) -> list[Mapping[str, Any]]:
    """A field that is a list of objects; empty if it is absent. Raises BadWorkload."""
    value = owner.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise BadWorkload(f"{name_of(manifest)}: {field} {quoted(_brief(value))} is not a list of objects")
    return value


def _brief(value: Any) -> str:
    """A scalar, or what else it is: the text of nested values may be long."""
    return str(value) if isinstance(value, str | int | float) else type(value).__name__
