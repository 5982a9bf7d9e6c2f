"""The quota webhook of a local cluster equals the one of deploy/webhooks."""

from pathlib import Path
from typing import Any

import yaml

from muster.lifecycle.quota.webhook import PATH
from muster.localcluster.quota_webhook import PATH as LOCAL_PATH
from muster.localcluster.quota_webhook import QuotaWebhook

MANIFEST = Path(__file__).parents[2] / "deploy" / "webhooks" / "quota.yaml"
ALIKE = ("name", "admissionReviewVersions", "sideEffects", "failurePolicy", "timeoutSeconds")


def installed() -> Any:
    documents = yaml.safe_load_all(MANIFEST.read_text())
    [configuration] = [each for each in documents if each["kind"] == "ValidatingWebhookConfiguration"]
    [webhook] = configuration["webhooks"]
    return webhook


async def test_local_and_installed_webhooks_are_equal(tmp_path: Path) -> None:
    local = QuotaWebhook(tmp_path, "127.0.0.1:1")
    await local.create_certificate()
    [webhook] = local.configuration()["webhooks"]
    assert {name: webhook[name] for name in ALIKE} == {name: installed()[name] for name in ALIKE}
    [rule], [other] = webhook["rules"], installed()["rules"]
    assert {**rule, "scope": "Namespaced"} == other


def test_the_webhook_path_is_the_same_everywhere() -> None:
    assert installed()["clientConfig"]["service"]["path"] == PATH == LOCAL_PATH


async def test_an_existing_certificate_is_kept(tmp_path: Path) -> None:
    local = QuotaWebhook(tmp_path, "127.0.0.1:1")
    await local.create_certificate()
    before = local.certificate.read_bytes()
    await local.create_certificate()
    assert local.certificate.read_bytes() == before
