"""The webhooks of a local cluster equal those of deploy/webhooks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.lifecycle.device_allocations.webhook import PATH as DEVICES_PATH
from muster.lifecycle.quota.webhook import PATH as QUOTA_PATH
from muster.localcluster.webhooks import DEVICES, QUOTA, LocalWebhook, WebhookKind

MANIFESTS = Path(__file__).parents[2] / "deploy" / "webhooks"
ALIKE = ("name", "admissionReviewVersions", "sideEffects", "failurePolicy", "timeoutSeconds")


def installed(kind: WebhookKind) -> Any:
    documents = yaml.safe_load_all((MANIFESTS / f"{kind.name}.yaml").read_text())
    [configuration] = [each for each in documents if each["kind"] == "ValidatingWebhookConfiguration"]
    [webhook] = configuration["webhooks"]
    return webhook


@pytest.mark.parametrize("kind", [QUOTA, DEVICES], ids=["quota", "devices"])
async def test_local_and_installed_webhooks_are_equal(tmp_path: Path, kind: WebhookKind) -> None:
    local = LocalWebhook(kind, tmp_path, "127.0.0.1:1")
    await local.create_certificate()
    [webhook] = local.configuration()["webhooks"]
    other = installed(kind)
    assert {name: webhook[name] for name in ALIKE} == {name: other[name] for name in ALIKE}
    [rule], [other_rule] = webhook["rules"], other["rules"]
    assert {**rule, "scope": "Namespaced"} == other_rule
    assert webhook["matchConditions"] == other.get("matchConditions", [])
    assert other["clientConfig"]["service"]["path"] == kind.path


def test_the_paths_are_the_same_everywhere() -> None:
    assert (QUOTA.path, DEVICES.path) == (QUOTA_PATH, DEVICES_PATH)


async def test_an_existing_certificate_is_kept(tmp_path: Path) -> None:
    local = LocalWebhook(QUOTA, tmp_path, "127.0.0.1:1")
    await local.create_certificate()
    before = local.certificate.read_bytes()
    await local.create_certificate()
    assert local.certificate.read_bytes() == before
