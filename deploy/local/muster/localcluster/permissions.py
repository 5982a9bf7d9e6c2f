"""RBAC rules of each service, from the files of the chart, and the objects that grant them.

A file has `rules` for all namespaces, `namespaced` ones by purpose for the namespace that Muster runs in, and
`optional` ones by the feature that needs them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct

from muster.localcluster.deploy_files import find_deploy_files
from muster.localcluster.manifests import Manifest

NAMESPACE: Final = "muster-system"
"""Namespace of Muster's ServiceAccounts and leases."""
SERVICES: Final = ("cluster-state", "binding", "lifecycle", "console")
"""Services with access to the Kubernetes API."""

_API: Final = "rbac.authorization.k8s.io"


class UnreadablePermissions(RuntimeError):
    """A file of permissions cannot be read; says which."""


class Rule(Struct, rename="camel", frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A PolicyRule about resources."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()


class Permission(Struct, frozen=True):
    """One verb on one resource. Empty `namespace`: all namespaces; empty `names`: all objects."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        resource_name = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {'/'.join(self.names)}" if self.names else ""
        return f"{self.verb} {resource_name}{named}{f' in {self.namespace}' if self.namespace else ''}"


class Permissions(Struct, frozen=True, forbid_unknown_fields=True):
    """All rules of one service."""

    rules: tuple[Rule, ...]
    namespaced: Mapping[str, tuple[Rule, ...]] = {}
    optional: Mapping[str, tuple[Rule, ...]] = {}

    @property
    def everywhere(self) -> tuple[Rule, ...]:
        """Rules for all namespaces with every feature enabled."""
        return self.rules + tuple(rule for rules in self.optional.values() for rule in rules)

    def each(self) -> Iterator[Permission]:
        """Every combination of verb and resource."""
        yield from _each(self.everywhere, "")
        for rules in self.namespaced.values():
            yield from _each(rules, NAMESPACE)


def find_permissions() -> Path:
    """Directory of the files. Raises NoDeployFiles."""
    return find_deploy_files("helm/muster/files/permissions")


def read_permissions(directory: Path) -> dict[str, Permissions]:
    """Service -> rules. Raises UnreadablePermissions."""
    found = {}
    for service in SERVICES:
        file = directory / f"{service}.yaml"
        try:
            found[service] = msgspec.convert(yaml.safe_load(file.read_text()), Permissions)
        except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
            raise UnreadablePermissions(f"the permissions of {service} cannot be read from {file}: {error}") from error
    return found


def account(service: str) -> str:
    """Name of a service's ServiceAccount."""
    return f"muster-{service}"


def grants(permissions: Mapping[str, Permissions]) -> list[Manifest]:
    """Namespace, ServiceAccounts, roles and bindings, in the order of creation."""
    bodies: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}]
    for service, rules in permissions.items():
        name = account(service)
        own_metadata = {"name": name, "namespace": NAMESPACE}
        bodies.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own_metadata})
        bodies += _role_and_binding("Cluster", {"name": name}, rules.everywhere)
        if namespaced := tuple(rule for group in rules.namespaced.values() for rule in group):
            bodies += _role_and_binding("", own_metadata, namespaced)
    return [Manifest(body) for body in bodies]


def _role_and_binding(scope: str, metadata: dict[str, str], rules: tuple[Rule, ...]) -> Iterator[dict[str, Any]]:
    kind, name = f"{scope}Role", metadata["name"]
    of_role = {"apiVersion": f"{_API}/v1", "kind": kind, "metadata": metadata}
    yield {**of_role, "rules": msgspec.to_builtins(rules)}
    yield {
        **of_role,
        "kind": f"{kind}Binding",
        "roleRef": {"apiGroup": _API, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }


def _each(rules: tuple[Rule, ...], namespace: str) -> Iterator[Permission]:
    for rule in rules:
        for group in rule.api_groups:
            for resource in rule.resources:
                for verb in rule.verbs:
                    yield Permission(verb, group, resource, namespace, rule.resource_names)
