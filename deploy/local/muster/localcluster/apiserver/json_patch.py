"""JSON patch (RFC 6902): operations on paths, all or none."""

import copy
from typing import Any


class BadPatch(ValueError):
    """A patch that cannot be applied; says which operation and why."""


def apply_json_patch(document: Any, patch: Any) -> Any:
    """The document after all operations. It may be changed on the way. Raises BadPatch."""
    if not isinstance(patch, list):
        raise BadPatch("a JSON patch is a list of operations")
    for operation in patch:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise BadPatch(f"{operation!r} is no operation with a path")
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    path = _steps(operation["path"])
    match operation.get("op"):
        case "test":
            if _at(document, path) != operation.get("value"):
                raise BadPatch(f"testing value at {operation['path']} failed")
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            _remove(document, path)
        case "replace":
            return _replace(document, path, _value(operation))
        case "move":
            source = _steps(operation.get("from", ""))
            value = _at(document, source)
            _remove(document, source)
            return _add(document, path, value)
        case "copy":
            return _add(document, path, copy.deepcopy(_at(document, _steps(operation.get("from", "")))))
        case other:
            raise BadPatch(f'"{other}" is no operation of a JSON patch')
    return document


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise BadPatch(f"operation at {operation['path']} has no value")
    return operation["value"]


def _steps(path: str) -> list[str]:
    if not path:
        return []
    if not path.startswith("/"):
        raise BadPatch(f'path "{path}" does not start with "/"')
    return [step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/")]


def _at(document: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(document, step)]
        else:
            raise BadPatch(f'there is nothing at "{step}"')
    return document


def _index(items: list[Any], step: str) -> int:
    if not step.isdigit() or int(step) >= len(items):
        raise BadPatch(f'"{step}" is no index of a list of {len(items)}')
    return int(step)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        if last != "-" and last != str(len(parent)):
            parent.insert(_index(parent, last), value)
        else:
            parent.append(value)
    else:
        raise BadPatch(f'there is no object or list to put "{last}" into')
    return document


def _remove(document: Any, path: list[str]) -> None:
    if not path:
        raise BadPatch("the whole document cannot be removed")
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, dict) and last in parent:
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(parent, last)]
    else:
        raise BadPatch(f'there is nothing at "{last}" to remove')


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent[_index(parent, last)] = value
    else:
        raise BadPatch(f'there is nothing at "{last}" to replace')
    return document
