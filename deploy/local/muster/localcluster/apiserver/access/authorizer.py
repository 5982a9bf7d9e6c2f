"""RBAC authorizer: evaluates the roles and bindings in the store."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.localcluster.apiserver.access.attributes import Attributes
from muster.localcluster.apiserver.access.users import User, account_of
from muster.localcluster.apiserver.store import Change, Collection, Object, Store

GROUP: Final = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"

_COLLECTIONS: Final = (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
_ANY: Final = "*"
_MAX_KNOWN: Final = 50_000

Names = frozenset[str] | None
"""Names of the objects that a rule allows; None: all."""
_NONE: Final[frozenset[str]] = frozenset()
_UNKNOWN: Final = frozenset({""})


class Rule(Struct, rename="camel", frozen=True):
    """A PolicyRule."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def names(self, verb: str, group: str, resource: str) -> Names:
        """Names of the objects for which it allows the verb; empty: none."""
        if (
            (_ANY in self.verbs or verb in self.verbs)
            and (_ANY in self.api_groups or group in self.api_groups)
            and _has(self.resources, resource)
        ):
            return frozenset(self.resource_names) or None
        return _NONE

    def has_path(self, verb: str, path: str) -> bool:
        """Whether it allows the verb on a non-resource URL."""
        if _ANY not in self.verbs and verb not in self.verbs:
            return False
        return any(
            each == path or (each.endswith(_ANY) and path.startswith(each[:-1])) for each in self.non_resource_urls
        )


class Grants(Struct, frozen=True):
    """All rules of a user: cluster-wide ones, and those of each namespace."""

    everywhere: tuple[Rule, ...]
    of_namespaces: Mapping[str, tuple[Rule, ...]]

    def of(self, namespace: str) -> tuple[Rule, ...]:
        """Rules that apply in a namespace; "": cluster-wide ones only."""
        return self.everywhere + self.of_namespaces.get(namespace, ()) if namespace else self.everywhere


class Authorizer:
    """Authorizer with a cache that is invalidated when a role or a binding changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[User, Grants] = {}
        self._known: dict[tuple[User, str, str, str, str], Names] = {}
        store.listen(self._note)

    def allows(self, user: User, attributes: Attributes) -> bool:
        if user.unbounded:
            return True
        if attributes.path:
            return any(rule.has_path(attributes.verb, attributes.path) for rule in self.grants(user).everywhere)
        key = (user, attributes.verb, attributes.group, attributes.resource, attributes.namespace)
        names = self._known.get(key, _UNKNOWN)
        if names is _UNKNOWN:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            rules = self.grants(user).of(attributes.namespace)
            names = self._known[key] = _allowed_names(rules, attributes.verb, attributes.group, attributes.resource)
        return names is None or (bool(attributes.name) and attributes.name in names)

    def grants(self, user: User) -> Grants:
        """All rules of the user."""
        found = self._grants.get(user)
        if found is None:
            if len(self._grants) >= _MAX_KNOWN:
                self._grants.clear()
            found = self._grants[user] = self._collect(user)
        return found

    def _rules_of(self, reference: Object, namespace: str) -> tuple[Rule, ...]:
        """Rules of the role that a binding references; empty if it does not exist."""
        name = str(reference.get("name", ""))
        if reference.get("kind") == "Role":
            found = self._store.get(ROLES, f"{namespace}/{name}")
        else:
            found = self._store.get(CLUSTER_ROLES, name)
        return () if found is None else tuple(msgspec.convert(each, Rule) for each in found.object.get("rules") or ())

    def _collect(self, user: User) -> Grants:
        everywhere: list[Rule] = []
        for record in self._store.collection(CLUSTER_ROLE_BINDINGS).records.values():
            if _is_for(record.object, user, ""):
                everywhere += self._rules_of(record.object["roleRef"], "")
        of_namespaces: dict[str, tuple[Rule, ...]] = {}
        for record in self._store.collection(ROLE_BINDINGS).records.values():
            namespace = str(record.metadata["namespace"])
            if _is_for(record.object, user, namespace):
                rules = self._rules_of(record.object["roleRef"], namespace)
                of_namespaces[namespace] = of_namespaces.get(namespace, ()) + rules
        return Grants(tuple(everywhere), of_namespaces)

    def _note(self, collection: Collection, change: Change) -> None:
        if collection.name in _COLLECTIONS:
            self._grants.clear()
            self._known.clear()


def _allowed_names(rules: Iterable[Rule], verb: str, group: str, resource: str) -> Names:
    """Names of the objects for which the rules allow the verb; empty: none."""
    found: frozenset[str] = _NONE
    for rule in rules:
        names = rule.names(verb, group, resource)
        if names is None:
            return None
        found |= names
    return found


def _has(resources: tuple[str, ...], resource: str) -> bool:
    if resource in resources or _ANY in resources:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"{_ANY}/{subresource}" in resources


def _is_for(binding: Object, user: User, namespace: str) -> bool:
    return any(_is(subject, user, namespace) for subject in binding.get("subjects") or ())


def _is(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == user.name
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            return account_of(user.name) == (subject.get("namespace") or namespace, subject.get("name"))
    return False
