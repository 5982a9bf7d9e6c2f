"""CustomResourceDefinitions, the kinds that they define, and the controller that serves them."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from muster.localcluster.apiserver.clock import age, now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.kinds import (
    ALL_VERBS,
    NAME_COLUMN,
    STATUS,
    Column,
    Kind,
    Rules,
    TableForm,
)
from muster.localcluster.apiserver.kubectl_jsonpath import find_all
from muster.localcluster.apiserver.metadata import subdomain_problems
from muster.localcluster.apiserver.schema import fill_defaults, prune, schema_causes
from muster.localcluster.apiserver.status import Cause, invalid_value, not_supported, required
from muster.localcluster.apiserver.store import Change, Collection, Object

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"


class DefinitionRules(Rules):
    """Defaults and validation of CustomResourceDefinitions; a valid one is established at once."""

    counts_generations = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})
        for version in spec.get("versions") or ():
            version.setdefault("served", False)
            version.setdefault("storage", False)
        if not self._problems(obj):
            obj["status"] = _established(spec, obj.get("status") or {})

    def validate(self, obj: Object) -> Iterable[Cause]:
        return self._problems(obj)

    def _problems(self, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        group, names = spec.get("group") or "", spec.get("names") or {}
        problems = [invalid_value("spec.group", group, each) for each in subdomain_problems(group)]
        problems += [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
        expected_name = f"{names.get('plural')}.{group}"
        if obj["metadata"].get("name") != expected_name:
            message = 'must be spec.names.plural+"."+spec.group'
            problems.append(invalid_value("metadata.name", obj["metadata"].get("name", ""), message))
        if spec.get("scope") not in ("Namespaced", "Cluster"):
            problems.append(not_supported("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced")))
        versions = spec.get("versions") or []
        if sum(bool(version["storage"]) for version in versions) != 1:
            message = "must have exactly one version marked as storage version"
            problems.append(invalid_value("spec.versions", [version.get("name") for version in versions], message))
        for index, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                field = f"spec.versions[{index}].schema.openAPIV3Schema"
                problems.append(required(field, "schemas are required"))
        return problems


class CustomRules(Rules):
    """Validation by a structural schema."""

    counts_generations = True
    checks_status = True

    def __init__(self, schema: Object, *, has_status: bool) -> None:
        self._schema = schema
        self.keeps_status_apart = has_status

    def default(self, obj: Object) -> None:
        for _ in prune(self._schema, obj):
            pass
        fill_defaults(self._schema, obj)

    def validate(self, obj: Object) -> Iterable[Cause]:
        return schema_causes(self._schema, obj)


class Definitions:
    """Reconciles the served kinds with the stored definitions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name != DEFINITIONS:
            return
        kinds = self._cluster.kinds
        if change.before is not None:
            for kind in kinds_of(change.before.object):
                kinds.remove(kind)
        if change.type == "DELETED":
            asyncio.get_running_loop().call_soon(self._clean, change.record.key)
            return
        for kind in kinds_of(change.record.object):
            kinds.add(kind)

    def _clean(self, resource: str) -> None:
        """Delete all objects of a resource whose definition was deleted, then end its watches."""
        store = self._cluster.store
        if resource in store.collection(DEFINITIONS).records:
            return  # defined again in the meantime
        if (collection := store.collections.get(resource)) is not None:
            for key in list(collection.records):
                store.remove(resource, key)
        store.drop_collection(resource)


def kinds_of(definition: Object) -> list[Kind]:
    """Kinds of a definition, one per version, the storage version first."""
    spec = definition["spec"]
    versions = sorted(spec["versions"], key=lambda version: not version["storage"])
    stored = f"{spec['group']}/{versions[0]['name']}"
    return [_kind(spec, version, stored) for version in versions if version["served"]]


def _kind(spec: Object, version: Object, stored: str) -> Kind:
    names, group = spec["names"], spec["group"]
    schema = version["schema"]["openAPIV3Schema"]
    has_status = "status" in (version.get("subresources") or {})
    own_version = f"{group}/{version['name']}"
    return Kind(
        group=group,
        version=version["name"],
        name=names["kind"],
        plural=names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=ALL_VERBS,
        subresources=(STATUS,) if has_status else (),
        rules=CustomRules(schema, has_status=has_status),
        table=_table(version.get("additionalPrinterColumns") or []),
        singular=names["singular"],
        list_name=names["listKind"],
        collection=f"{names['plural']}.{group}",
        to_stored=None if own_version == stored else lambda obj: {**obj, "apiVersion": stored},
        from_stored=None if own_version == stored else lambda obj: {**obj, "apiVersion": own_version},
        custom=True,
        schema=schema,
    )


def _table(listed: list[Object]) -> TableForm | None:
    if not listed:
        return None
    columns = [
        Column(
            each["name"],
            each.get("type", "string"),
            each.get("priority", 0),
            each.get("format", ""),
            each.get("description") or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
        )
        for each in listed
    ]
    paths = [(column.type, each["jsonPath"]) for column, each in zip(columns, listed, strict=True)]

    def cells(obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], *(_cell(kind, path, obj, now) for kind, path in paths)]

    return TableForm((NAME_COLUMN, *columns), cells)


def _cell(kind: str, path: str, obj: Object, now: float) -> Any:
    found = find_all(path, obj)
    if not found:
        return None
    value = found[0] if len(found) == 1 else ",".join(map(str, found))
    return age(value, now) if kind == "date" else value


def _established(spec: Object, previous: Object) -> Object:
    def condition(name: str, reason: str, message: str) -> Object:
        return {
            "type": name,
            "status": "True",
            "lastTransitionTime": now_text(),
            "reason": reason,
            "message": message,
        }

    stored = [version["name"] for version in spec["versions"] if version["storage"]]
    return {
        "conditions": previous.get("conditions")
        or [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": dict(spec["names"]),
        "storedVersions": stored,
    }
