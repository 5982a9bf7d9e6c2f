"""Validation of names, labels and annotations."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from muster.localcluster.apiserver.status import Cause, StatusError, bad_request, invalid_value, required, too_long
from muster.localcluster.apiserver.store import Object

MAX_ANNOTATION_BYTES: Final = 256 * 1024

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_NAME_PART})?"

_is_label: Final = re.compile(_LABEL).fullmatch
_is_subdomain: Final = re.compile(_SUBDOMAIN).fullmatch
_is_name_part: Final = re.compile(_NAME_PART).fullmatch
_is_value: Final = re.compile(_VALUE).fullmatch

_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_PART_MESSAGE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
)
_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)


def label_problems(text: str) -> Iterator[str]:
    """Problems of a DNS label (container name, namespace)."""
    if len(text) > 63:
        yield "must be no more than 63 bytes"
    if not _is_label(text):
        yield _LABEL_MESSAGE


def subdomain_problems(text: str) -> Iterator[str]:
    """Problems of a DNS subdomain (name of most objects)."""
    if len(text) > 253:
        yield "must be no more than 253 bytes"
    if not _is_subdomain(text):
        yield _SUBDOMAIN_MESSAGE


def qualified_name_problems(key: str) -> Iterator[str]:
    """Problems of a qualified name (label, annotation, resource)."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        yield f"a qualified name {_PART_MESSAGE[len('name part ') :]} with an optional DNS subdomain prefix and '/'"
        return
    if slash:
        if not prefix:
            yield "prefix part must be non-empty"
        elif not _is_subdomain(prefix):
            yield f"prefix part {_SUBDOMAIN_MESSAGE}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 bytes"
    if not _is_name_part(name):
        yield _PART_MESSAGE


def value_problems(value: str) -> Iterator[str]:
    """Problems of a label value."""
    if len(value) > 63:
        yield "must be no more than 63 bytes"
    if not _is_value(value):
        yield _VALUE_MESSAGE


def labels_causes(labels: dict[str, str], field: str) -> Iterator[Cause]:
    for key, value in labels.items():
        for problem in qualified_name_problems(key):
            yield invalid_value(field, key, problem)
        for problem in value_problems(value):
            yield invalid_value(field, value, problem)


def metadata_causes(
    metadata: Object, name_problems: Callable[[str], Iterable[str]] = subdomain_problems
) -> Iterator[Cause]:
    """Problems of an object's metadata."""
    if generate := metadata.get("generateName"):
        for problem in name_problems(generate.rstrip("-.") or "a"):
            yield invalid_value("metadata.generateName", generate, problem)
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        for problem in name_problems(name):
            yield invalid_value("metadata.name", name, problem)
    if labels := metadata.get("labels"):
        yield from labels_causes(labels, "metadata.labels")
    if annotations := metadata.get("annotations"):
        for key in annotations:
            for problem in qualified_name_problems(key.lower()):
                yield invalid_value("metadata.annotations", key, problem)
        if _bytes(annotations) > MAX_ANNOTATION_BYTES:
            yield too_long("metadata.annotations", MAX_ANNOTATION_BYTES)
    owners = metadata.get("ownerReferences") or ()
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller") is True]
    if len(controllers) > 1:
        message = 'Only one reference can have Controller set to true. Found "true" in references for '
        yield invalid_value("metadata.ownerReferences", owners, message + " and ".join(controllers[:2]))
    for index, owner in enumerate(owners):
        yield from _owner_causes(owner, f"metadata.ownerReferences[{index}]")
    for finalizer in metadata.get("finalizers") or ():
        for problem in qualified_name_problems(finalizer):
            yield invalid_value("metadata.finalizers", finalizer, problem)


def check_metadata_types(metadata: Any, version: str, kind: str) -> None:
    """Check the JSON types of metadata. Raises StatusError 400."""
    if not isinstance(metadata, dict):
        raise mistyped(version, kind, metadata, "ObjectMeta.metadata", "v1.ObjectMeta")
    for name in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        value = metadata.get(name)
        if value is None:
            metadata.pop(name, None)
        elif not isinstance(value, str):
            raise mistyped(version, kind, value, f"ObjectMeta.metadata.{name}", "string")
    for name in ("labels", "annotations"):
        values = metadata.get(name)
        if values is None:
            metadata.pop(name, None)
            continue
        if not isinstance(values, dict):
            raise mistyped(version, kind, values, f"ObjectMeta.metadata.{name}", "map[string]string")
        for key, value in values.items():
            if value is None:
                values[key] = ""  # as Go decodes null into a string
            elif not isinstance(value, str):
                raise mistyped(version, kind, value, f"ObjectMeta.metadata.{name}", "string")
    for name, of in (("ownerReferences", dict), ("finalizers", str)):
        items = metadata.get(name)
        if items is None:
            metadata.pop(name, None)
        elif not isinstance(items, list) or not all(isinstance(item, of) for item in items):
            raise mistyped(version, kind, items, f"ObjectMeta.metadata.{name}", f"[]{of.__name__}")


def json_type(value: object) -> str:
    """JSON type of a value."""
    if isinstance(value, bool):
        return "bool"
    names = {str: "string", int: "number", float: "number", dict: "object", list: "array"}
    return names.get(type(value), "null")


def mistyped(version: str, kind: str, value: object, field: str, expected: str) -> StatusError:
    """Rejection of a value of the wrong type; the field is that of a struct, as the real server says it."""
    return bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: json: cannot unmarshal {json_type(value)} '
        f"into Go struct field {field} of type {expected}"
    )


def _owner_causes(owner: Object, field: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind", "name", "uid"):
        if not owner.get(name):
            yield Cause("FieldValueInvalid", f'Invalid value: "": {name} must not be empty', f"{field}.{name}")


def _bytes(annotations: dict[str, str]) -> int:
    total = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if 4 * total <= MAX_ANNOTATION_BYTES:
        return total
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
