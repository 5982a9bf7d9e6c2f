"""Rights of services are written once, in the chart's files, and equal everywhere else."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from muster.localcluster.rights import NAMESPACE, SERVICES, NoRights, Rights, Rule, find_rights, grants, read_rights

ROOT = Path(__file__).parents[3]


@pytest.fixture
def rights() -> dict[str, Rights]:
    return read_rights(find_rights())


def test_the_rights_page_is_up_to_date() -> None:
    tool = str(ROOT / "tools" / "permissions_page.py")
    made = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs" / "permissions.md").read_text(), "python tools/permissions_page.py --write"


def test_cluster_state_has_read_rights_only(rights: dict[str, Rights]) -> None:
    assert {right.verb for right in rights["cluster-state"].each()} == {"list", "watch"}


def test_no_right_is_a_wildcard(rights: dict[str, Rights]) -> None:
    for granted in rights.values():
        for right in granted.each():
            assert "*" not in (right.verb, right.group, right.resource)
            assert right.resource not in ("secrets", "serviceaccounts", "roles", "clusterroles")
            assert right.verb not in ("escalate", "bind", "impersonate", "deletecollection")


def test_no_right_is_granted_twice(rights: dict[str, Rights]) -> None:
    for service, granted in rights.items():
        each = [str(right) for right in granted.each()]
        assert sorted(each) == sorted(set(each)), service


def test_the_webhook_manifest_adds_the_rights_of_quota(rights: dict[str, Rights]) -> None:
    written = list(yaml.safe_load_all((ROOT / "deploy" / "webhooks" / "quota.yaml").read_text()))
    rules: dict[str, Any] = {each["kind"]: each["rules"] for each in written if "rules" in each}
    assert msgspec.convert(rules["ClusterRole"], tuple[Rule, ...]) == rights["lifecycle"].optional["quota"]
    assert msgspec.convert(rules["Role"], tuple[Rule, ...]) == rights["lifecycle"].namespaced["quota"]


def test_each_service_is_bound_to_its_own_roles(rights: dict[str, Rights]) -> None:
    made = [manifest.body for manifest in grants(rights)]
    bindings = [each for each in made if each["kind"].endswith("Binding")]
    assert [each["subjects"] for each in bindings] == [
        [{"kind": "ServiceAccount", "name": each["roleRef"]["name"], "namespace": NAMESPACE}] for each in bindings
    ]
    assert {each["roleRef"]["name"] for each in bindings} == {f"muster-{service}" for service in SERVICES}


def test_an_unknown_field_in_a_rights_file_is_rejected(tmp_path: Path) -> None:
    for service in SERVICES:
        text = (find_rights() / f"{service}.yaml").read_text()
        (tmp_path / f"{service}.yaml").write_text(text)
    (tmp_path / "binding.yaml").write_text("rules:\n- {apiGroups: [''], resource: [pods], verbs: [get]}\n")
    with pytest.raises(NoRights, match=r"the rights of binding cannot be read from .*binding\.yaml"):
        read_rights(tmp_path)
