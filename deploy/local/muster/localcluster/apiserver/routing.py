"""Resolves request paths to kind, object and subresource."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from muster.localcluster.apiserver.access.users import ADMINISTRATOR, User
from muster.localcluster.apiserver.kinds import Kind, Kinds
from muster.localcluster.apiserver.status import bad_request, no_such_resource

_STATUS: Final = "status"


class NoSuchPath(Exception):
    """The path is not served; the response is no Status object."""


@dataclass(frozen=True, slots=True)
class Target:
    """Resolved path of a request. No name: all objects, or those of a namespace."""

    kind: Kind
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""


@dataclass(slots=True)
class Call:
    """Resource request, independent of HTTP."""

    method: str
    target: Target
    query: dict[str, str]
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    user: User = ADMINISTRATOR
    warnings: list[str] = field(default_factory=list)
    """Warning headers of the response."""
    trial: bool = False
    """Execute without storing the result or charging quotas."""
    uid: str = ""
    """Uid of a new object from its dry run; empty: generate one. The same holds for `name` if the client gave none."""
    name: str = ""
    at_revision: int = 0
    """Change the object only at this revision; 0: at any."""

    @property
    def dry_run(self) -> bool:
        return bool(self.query.get("dryRun"))

    def flag(self, name: str) -> bool:
        """Boolean query parameter."""
        return self.query.get(name, "").lower() in ("true", "1", "t")

    def number(self, name: str) -> int | None:
        """Integer query parameter; None if it is missing. Raises StatusError 400."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            message = f'strconv.ParseInt: parsing "{text}": invalid syntax (parameter {name})'
            raise bad_request(message) from None


def split_target(raw: str) -> tuple[str, dict[str, str]]:
    """Path and query parameters of a request line; the first value of a repeated parameter."""
    path, separator, text = raw.partition("?")
    query: dict[str, str] = {}
    if separator:
        for name, value in parse_qsl(text, keep_blank_values=True):
            query.setdefault(name, value)
    return (unquote(path) if "%" in path else path), query


def find_target(kinds: Kinds, path: str) -> Target:
    """Resolve a path below /api/v1 or /apis/GROUP/VERSION. Raises NoSuchPath and StatusError 404."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise NoSuchPath
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2:] != [_STATUS]:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None:
        if group and not kinds.of(group, version):
            raise NoSuchPath
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else None
    subresource = "/".join(rest[2:])
    if subresource and kind.subresource(subresource) is None:
        raise no_such_resource()
    if (namespace is not None and not kind.namespaced) or (name is not None and kind.namespaced and namespace is None):
        raise no_such_resource()
    return Target(kind, namespace, name, subresource)
