"""Discovery documents of groups, versions and resources."""

from typing import Any, Final

import msgspec

from muster.localcluster.apiserver.kinds import Kind, Kinds, Subresource
from muster.localcluster.apiserver.store import Object

VERSION: Final = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+muster-local",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def discover(kinds: Kinds, path: str, host: str) -> bytes | None:
    """The discovery document at a path; None if there is none. `host`: the Host header of the request."""
    parts = path.strip("/").split("/")
    document: Object | None = None
    match parts:
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
            document = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in kinds.groups().items() if name]
            document = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            document = _resources(kinds.of("", version), version)
        case ["apis", group] if versions := kinds.groups().get(group):
            document = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
        case ["apis", group, version]:
            document = _resources(kinds.of(group, version), f"{group}/{version}")
        case ["version"]:
            document = VERSION
    return None if document is None else msgspec.json.encode(document)


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(kinds: list[Kind], group_version: str) -> Object | None:
    if not kinds:
        return None
    resources: list[Any] = []
    for kind in kinds:
        resources.append(_resource(kind))
        resources += [_subresource(kind, each) for each in kind.subresources]
    resources.sort(key=lambda each: str(each["name"]))
    listed = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version}
    return listed | {"resources": resources}


def _resource(kind: Kind) -> Object:
    document: Object = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        document["shortNames"] = list(kind.short_names)
    if kind.categories:
        document["categories"] = list(kind.categories)
    return document


def _subresource(kind: Kind, sub: Subresource) -> Object:
    document: Object = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind or kind.name,
        "verbs": list(sub.verbs),
    }
    if sub.version:
        document |= {"group": sub.group, "version": sub.version}
    return document
