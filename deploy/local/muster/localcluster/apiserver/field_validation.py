"""The fieldValidation parameter: unknown fields are an error, a warning or ignored."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from muster.localcluster.apiserver.kinds import Kind
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.schema import prune
from muster.localcluster.apiserver.status import bad_request
from muster.localcluster.apiserver.store import Object

_MODELS: Final = {
    ("", "Event"): "CoreV1Event",
    ("events.k8s.io", "Event"): "EventsV1Event",
    ("resource.k8s.io", "ResourceClaim"): "ResourceV1ResourceClaim",
}
_LIST: Final = re.compile(r"^List\[(.+)\]$")
_MAP: Final = re.compile(r"^Dict\[str, (.+)\]$")


def validate_fields(kind: Kind, obj: Object, call: Call) -> None:
    """Fail (Strict) or warn (Warn) about unknown fields. They are pruned from custom objects in any case.

    Raises StatusError 400.
    """
    mode = call.query.get("fieldValidation", "")
    if kind.schema is not None:
        unknown = list(prune(kind.schema, obj))
    elif mode in ("Strict", "Warn"):
        # Field names of built-in kinds come from the models of the Kubernetes client, which is slow to import. Only
        # kubectl sends the parameter.
        unknown = list(_unknown(_MODELS.get((kind.group, kind.name), f"V1{kind.name}"), obj, ""))
    else:
        return
    problems = [f'unknown field "{path}"' for path in unknown]
    if problems and mode == "Strict":
        raise bad_request(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: strict decoding error: '
            f"{', '.join(problems)}"
        )
    if mode == "Warn":
        call.warnings.extend(problems)


def _unknown(type_name: str, value: Any, path: str) -> Iterator[str]:
    if match := _LIST.match(type_name):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _unknown(match[1], item, f"{path}[{index}]")
    elif match := _MAP.match(type_name):
        if isinstance(value, dict):
            for name, member in value.items():
                yield from _unknown(match[1], member, f"{path}.{name}")
    elif isinstance(value, dict) and (fields := _fields(type_name)) is not None:
        for name, member in value.items():
            at = f"{path}.{name}" if path else name
            if name in fields:
                yield from _unknown(fields[name], member, at)
            elif not name.startswith("$"):
                yield at


@cache
def _fields(type_name: str) -> Mapping[str, str] | None:
    """Field -> type of a model; None if it is no model."""
    from kubernetes import client

    model = getattr(client, type_name, None)
    types = getattr(model, "openapi_types", None)
    if types is None:
        return None
    assert model is not None
    return {model.attribute_map[attribute]: type_of for attribute, type_of in types.items()}
