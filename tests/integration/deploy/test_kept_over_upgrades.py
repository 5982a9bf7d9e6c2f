"""Objects that Helm finds in the cluster during an upgrade: kept, renewed, left alone or rejected."""

import asyncio
import base64
import itertools
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from builders.deploy.chart import bare_api_server
from builders.deploy.helm import CHART, RELEASE, helm, program
from muster.kube.session import KubeSession
from muster.rpc.credentials import expiry

JSON = dict[str, Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")

_CALL_SECONDS = 60.0
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LONG_AGO = "1000000000"
_numbers = itertools.count()


class Cluster:
    """A namespace of an API server, and a Helm release in it."""

    def __init__(self, kubeconfig: Path, session: KubeSession, namespace: str) -> None:
        self._kubeconfig, self._session, self.namespace = kubeconfig, session, namespace
        self.secrets_path = f"/api/v1/namespaces/{namespace}/secrets"

    async def upgrade(self, **values: Any) -> None:
        """Install, or upgrade."""
        result = await self.try_upgrade(**values)
        assert result.returncode == 0, result.stderr

    async def try_upgrade(self, **values: Any) -> subprocess.CompletedProcess[str]:
        arguments = ("upgrade", "--install", RELEASE, str(CHART), "--create-namespace", "--values", "-")
        return await self.helm(*arguments, input=yaml.safe_dump(values))

    async def helm(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        return await asyncio.to_thread(helm, *arguments, "--namespace", self.namespace, env=environment, **options)

    async def call(self, method: Any, path: str, body: JSON | None = None) -> JSON:
        content = None if body is None else msgspec.json.encode(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await self._session.request(
            method, path, body=content, content_type=kind, timeout_seconds=_CALL_SECONDS
        )
        assert answer.status < 300, answer.body
        return msgspec.json.decode(answer.body)  # type: ignore[no-any-return]

    async def secrets(self) -> dict[str, JSON]:
        """Data of Secrets by name, except Helm's own."""
        items = (await self.call("GET", self.secrets_path))["items"]
        return {name: each["data"] for each in items if not (name := each["metadata"]["name"]).startswith("sh.helm")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Path, KubeSession]]:
    """One API server for all tests, each with its own namespace; CRDs are shared."""
    program()
    async with bare_api_server(tmp_path_factory.mktemp("api-server")) as (kubeconfig, session):
        yield kubeconfig, session


@pytest.fixture
def cluster(api_server: tuple[Path, KubeSession]) -> Cluster:
    return Cluster(*api_server, f"release-{next(_numbers)}")


def authority_of(name: str, directory: Path) -> JSON:
    """A new authority, as the data of its Secret."""
    key, certificate = directory / "authority.key", directory / "authority.crt"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, "-subj", f"/CN={name}", "-days", "2", *files], capture_output=True, check=True)
    data = {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}
    return {name: base64.b64encode(file.read_bytes()).decode() for name, file in data.items()}


def signed_by(certificate: JSON, authority: JSON, directory: Path) -> bool:
    """Whether openssl verifies the certificate."""
    (directory / "leaf.pem").write_bytes(base64.b64decode(certificate["tls.crt"]))
    (directory / "ca.pem").write_bytes(base64.b64decode(authority["tls.crt"]))
    command = ["openssl", "verify", "-CAfile", str(directory / "ca.pem"), str(directory / "leaf.pem")]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


async def test_crds_installed_by_others_are_not_changed(cluster: Cluster) -> None:
    definition = yaml.safe_load((CHART / "files" / "crds" / "scheduling.x-k8s.io_podgroups.yaml").read_text())
    definition["metadata"]["labels"] = {"of": "others"}
    await cluster.call("POST", _DEFINITIONS, definition)  # no release of this module is installed yet
    await cluster.upgrade()
    found = await cluster.call("GET", f"{_DEFINITIONS}/{definition['metadata']['name']}")
    assert found["metadata"]["labels"] == {"of": "others"}


async def test_certificates_are_reissued_only_when_old_or_renamed(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.upgrade()
    first = await cluster.secrets()
    await cluster.upgrade(logLevel="debug")
    assert await cluster.secrets() == first

    old = {"metadata": {"annotations": {"muster.dev/made-at": _LONG_AGO}}}
    await cluster.call("PATCH", f"{cluster.secrets_path}/muster-binding-tls", old)
    await cluster.upgrade()
    second = await cluster.secrets()
    assert {name for name in first if second[name] != first[name]} == {"muster-binding-tls"}
    assert signed_by(second["muster-binding-tls"], first["muster-services-ca"], tmp_path)
    assert not signed_by(second["muster-binding-tls"], first["muster-etcd-ca"], tmp_path)

    await cluster.upgrade(tls={"extraDnsNames": ["muster.example.com"]})
    third = await cluster.secrets()
    kept = {"muster-services-ca", "muster-etcd-ca", "muster-etcd-auth", "muster-etcd-client-tls", "muster-client-tls"}
    assert {name for name in second if third[name] == second[name]} == kept


async def test_no_certificate_outlives_its_authority(cluster: Cluster) -> None:
    await cluster.upgrade(tls={"generated": {"days": 30, "authorityDays": 400}})
    authority = (await cluster.call("GET", f"{cluster.secrets_path}/muster-services-ca"))["metadata"]
    ends = int(authority["annotations"]["muster.dev/ends-at"])
    assert _days_left(await cluster.secrets()) == 29

    soon = {"metadata": {"annotations": {"muster.dev/ends-at": str(ends - 390 * 86400)}}}
    await cluster.call("PATCH", f"{cluster.secrets_path}/muster-services-ca", soon)
    await cluster.upgrade(tls={"generated": {"days": 31, "authorityDays": 400}})
    assert _days_left(await cluster.secrets()) in (8, 9)
    kept = (await cluster.call("GET", f"{cluster.secrets_path}/muster-services-ca"))["metadata"]["annotations"]
    assert kept["muster.dev/ends-at"] == soon["metadata"]["annotations"]["muster.dev/ends-at"]


def _days_left(secrets: dict[str, JSON]) -> int:
    """Whole days until binding's certificate expires."""
    until = expiry(base64.b64decode(secrets["muster-binding-tls"]["tls.crt"]))
    return int(until.timestamp() - time.time()) // 86400


async def test_uninstalling_keeps_etcd_volumes_and_passwords(cluster: Cluster) -> None:
    await cluster.upgrade()
    passwords = (await cluster.secrets())["muster-etcd-auth"]
    result = await cluster.helm("uninstall", RELEASE)
    assert result.returncode == 0, result.stderr
    assert await cluster.secrets() == {"muster-etcd-auth": passwords}
    assert len((await cluster.call("GET", _DEFINITIONS))["items"]) == len(list((CHART / "files" / "crds").iterdir()))
    await cluster.upgrade()
    assert (await cluster.secrets())["muster-etcd-auth"] == passwords


async def test_changing_the_number_of_etcd_members_is_rejected(cluster: Cluster) -> None:
    await cluster.upgrade(etcd={"replicas": 1})
    result = await cluster.try_upgrade(etcd={"replicas": 3})
    assert result.returncode != 0
    assert "etcd.replicas is 3 and 1 members are there" in result.stderr


async def test_switching_tls_of_etcd_members_is_rejected(cluster: Cluster) -> None:
    await cluster.upgrade(tls={"mode": "none"})
    result = await cluster.try_upgrade(tls={"mode": "generated"})
    assert result.returncode != 0
    assert "tls.mode is generated, and etcd's members know each other by addresses of the other kind" in result.stderr


async def test_certificates_migrate_to_cert_manager_and_back(cluster: Cluster, tmp_path: Path) -> None:
    for kind in ("Issuer", "Certificate"):
        await cluster.call("POST", _DEFINITIONS, _kind_of_cert_manager(kind))
    await cluster.upgrade()
    await cluster.upgrade(tls={"mode": "certManager"})
    assert set(await cluster.secrets()) == {"muster-etcd-auth"}
    made = await _as_cert_manager_would(cluster, tmp_path)

    await cluster.upgrade(tls={"mode": "generated"})
    secrets = await cluster.secrets()
    assert secrets["muster-services-ca"] == made["muster-services-ca"], "the authority is kept"
    assert secrets["muster-binding-tls"] != made["muster-binding-tls"]
    assert signed_by(secrets["muster-binding-tls"], made["muster-services-ca"], tmp_path)


def _kind_of_cert_manager(kind: str) -> JSON:
    group, plural = "cert-manager.io", f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def _as_cert_manager_would(cluster: Cluster, directory: Path) -> dict[str, JSON]:
    """Secrets that the Certificates request, with another authority."""
    authority = authority_of("muster-services-ca", directory)
    path = f"/apis/cert-manager.io/v1/namespaces/{cluster.namespace}/certificates"
    for certificate in (await cluster.call("GET", path))["items"]:
        spec = certificate["spec"]
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": spec["secretName"], **spec["secretTemplate"]},
            "data": authority,
        }
        await cluster.call("POST", cluster.secrets_path, body)
    return await cluster.secrets()


async def test_the_notes_warn_about_unsafe_values(cluster: Cluster) -> None:
    etcd: JSON = {"endpoints": ["a:1"], "user": "me", "passwordSecret": "p"}
    placement: JSON = {"address": "a:1"}
    values: JSON = {
        "etcd": {"enabled": False, "external": etcd},
        "placement": {"implementation": "external", "external": placement},
        "metrics": {"enabled": False, "prometheusRule": {"enabled": True}},
    }
    result = await cluster.try_upgrade(**values)
    assert "is sent in plain text" in result.stdout
    assert "blocks your placement's connection to cluster-state" in result.stdout
    assert "no alerts are installed" in result.stdout
    etcd["tlsSecret"], placement["peers"] = "t", [{"podSelector": {}}]
    result = await cluster.try_upgrade(**values)
    assert result.returncode == 0, result.stderr
    assert "plain text" not in result.stdout
    assert "blocks your placement's connection" not in result.stdout


async def test_the_webhooks_authority_is_read_from_its_secret(cluster: Cluster) -> None:
    await cluster.call("POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": cluster.namespace}})
    data = {key: base64.b64encode(key.encode()).decode() for key in ("tls.crt", "tls.key", "ca.crt")}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "from-vault"}, "data": data}
    await cluster.call("POST", cluster.secrets_path, body)
    await cluster.upgrade(tls={"mode": "secret", "secrets": {"lifecycle": "from-vault"}}, quota={"enabled": True})
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    items = (await cluster.call("GET", path))["items"]
    [configuration] = [each for each in items if each["metadata"]["name"].startswith(cluster.namespace)]
    assert configuration["webhooks"][0]["clientConfig"]["caBundle"] == data["ca.crt"]
