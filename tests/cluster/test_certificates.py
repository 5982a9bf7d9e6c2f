"""A second release, with certificates that the chart did not generate: a user's own, and cert-manager's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from builders.deploy.helm import CHART
from cluster.cert_manager import running_cert_manager
from cluster.release import JSON, Release
from muster.localcluster.certificates import Authority

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(1200)]

NAME = "secure"
"""Of the release, its namespace and its scheduler."""
SERVICES = ("cluster-state", "coordinator", "placement", "binding", "lifecycle")
ONE_OF_EACH: JSON = {
    "schedulerNames": [NAME],
    "crds": {"install": False},
    "clusterState": {"replicas": 1},
    "coordinator": {"replicas": 1},
    "placement": {"replicas": 1, "autoscaling": {"enabled": False}, "resources": {"requests": {"cpu": "100m"}}},
    "binding": {"replicas": 1},
    "lifecycle": {"replicas": 1},
    "etcd": {"replicas": 1},
}


async def test_certificates_in_secrets_of_the_user(release: Release, tmp_path: Path) -> None:
    """Of one authority, with the names that docs/helm.md lists."""
    host = f"{NAME}-muster-etcd.{NAME}.svc"
    certificates = {
        each: [f"{NAME}-muster-{each}{end}" for end in ("", f".{NAME}", f".{NAME}.svc")] for each in SERVICES
    }
    certificates |= {"etcd": [f"*.{host}"], "etcd-peer": [f"*.{host}"], "etcd-client": []}
    authority = Authority(tmp_path / "tls")
    await authority.create()
    await release.cluster.kubectl("create", "namespace", NAME)
    for each, names in certificates.items():
        await authority.issue(f"{NAME}-muster-{each}", *names)
        files = authority.files(f"{NAME}-muster-{each}")
        arguments = (f"--from-file=tls.crt={files.certificate_file}", f"--from-file=tls.key={files.key_file}")
        secret = ("create", "secret", "generic", f"{NAME}-muster-{each}-tls")
        await release.cluster.kubectl("-n", NAME, *secret, *arguments, f"--from-file=ca.crt={files.ca_file}")
    async with installed(release, tmp_path, {"mode": "secret"}) as output:
        assert "Phase:          Succeeded" in output


async def test_certificates_of_cert_manager(release: Release, tmp_path: Path) -> None:
    """From the authorities that the chart asks for."""
    async with running_cert_manager(release.cluster), installed(release, tmp_path, {"mode": "certManager"}) as output:
        assert "Phase:          Succeeded" in output
        certificates = await release.cluster.get("-n", NAME, "certificates.cert-manager.io")
        assert len(certificates["items"]) > len(SERVICES)


@asynccontextmanager
async def installed(release: Release, directory: Path, tls: JSON) -> AsyncIterator[str]:
    """A second release that is ready; the output of `helm test`, which starts a gang with it."""
    cluster, values = release.cluster, directory / "values.json"
    values.write_bytes(msgspec.json.encode({**ONE_OF_EACH, "tls": tls}))
    where = ("--namespace", NAME, "--create-namespace")
    try:
        await cluster.helm("install", NAME, str(CHART), *where, "--values", str(values), "--wait", "--timeout", "280s")
        yield await cluster.helm("test", NAME, "--namespace", NAME, "--timeout", "200s")
    finally:
        await cluster.helm("uninstall", NAME, "--namespace", NAME, "--ignore-not-found", "--wait")
        await cluster.kubectl("delete", "namespace", NAME, "--ignore-not-found")
