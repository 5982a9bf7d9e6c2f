"""Permissions of services are written once, in the chart's files, and equal everywhere else."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from muster.localcluster.permissions import (
    NAMESPACE,
    SERVICES,
    Permissions,
    Rule,
    UnreadablePermissions,
    find_permissions,
    grants,
    read_permissions,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def permissions() -> dict[str, Permissions]:
    return read_permissions(find_permissions())


def test_the_permissions_page_is_up_to_date() -> None:
    tool = str(ROOT / "tools" / "permissions_page.py")
    made = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs" / "permissions.md").read_text(), "python tools/permissions_page.py --write"


def test_cluster_state_has_read_permissions_only(permissions: dict[str, Permissions]) -> None:
    assert {permission.verb for permission in permissions["cluster-state"].each()} == {"list", "watch"}


def test_no_permission_is_a_wildcard(permissions: dict[str, Permissions]) -> None:
    for granted in permissions.values():
        for permission in granted.each():
            assert "*" not in (permission.verb, permission.group, permission.resource)
            assert permission.resource not in ("secrets", "serviceaccounts", "roles", "clusterroles")
            assert permission.verb not in ("escalate", "bind", "impersonate", "deletecollection")


def test_no_permission_is_granted_twice(permissions: dict[str, Permissions]) -> None:
    """Each webhook creates ConfigMaps."""
    for service, granted in permissions.items():
        each = [str(permission) for permission in granted.each()]
        twice = {name for name in each if each.count(name) > 1}
        assert twice <= {f"create configmaps in {NAMESPACE}"}, service


@pytest.mark.parametrize("name", ["quota", "devices"])
def test_the_webhook_manifests_add_their_permissions(permissions: dict[str, Permissions], name: str) -> None:
    written = list(yaml.safe_load_all((ROOT / "deploy" / "webhooks" / f"{name}.yaml").read_text()))
    rules: dict[str, Any] = {each["kind"]: each["rules"] for each in written if "rules" in each}
    assert msgspec.convert(rules["ClusterRole"], tuple[Rule, ...]) == permissions["lifecycle"].optional[name]
    assert msgspec.convert(rules["Role"], tuple[Rule, ...]) == permissions["lifecycle"].namespaced[name]


def test_each_service_is_bound_to_its_own_roles(permissions: dict[str, Permissions]) -> None:
    made = [manifest.body for manifest in grants(permissions)]
    bindings = [each for each in made if each["kind"].endswith("Binding")]
    assert [each["subjects"] for each in bindings] == [
        [{"kind": "ServiceAccount", "name": each["roleRef"]["name"], "namespace": NAMESPACE}] for each in bindings
    ]
    assert {each["roleRef"]["name"] for each in bindings} == {f"muster-{service}" for service in SERVICES}


def test_an_unknown_field_in_a_permissions_file_is_rejected(tmp_path: Path) -> None:
    for service in SERVICES:
        text = (find_permissions() / f"{service}.yaml").read_text()
        (tmp_path / f"{service}.yaml").write_text(text)
    (tmp_path / "binding.yaml").write_text("rules:\n- {apiGroups: [''], resource: [pods], verbs: [get]}\n")
    with pytest.raises(UnreadablePermissions, match=r"the permissions of binding cannot be read from .*binding\.yaml"):
        read_permissions(tmp_path)
