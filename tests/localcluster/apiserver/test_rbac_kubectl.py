"""RBAC with kubectl over HTTPS."""

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from builders.kube.client import PODS
from builders.net.certificates import Authority
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.apiserver.access.users import AUTHENTICATED, User
from muster.localcluster.apiserver.kubeconfigs import Certificates, write_kubeconfig

BOB = "bob-token"
ROLES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
"""


class Kubectl:
    """kubectl with the kubeconfigs of a directory."""

    def __init__(self, directory: Path, url: str) -> None:
        path = shutil.which("kubectl")
        assert path, "kubectl is not installed: apt-get install kubernetes-client"
        self._path, self._directory, self.url = path, directory, url

    async def __call__(self, who: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Standard output; standard error of a command that must fail."""
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "HOME": str(self._directory), "KUBECONFIG": str(self._directory / who)}
        process = await asyncio.create_subprocess_exec(
            self._path, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert (process.returncode != 0) is fails, f"kubectl {arguments}: {out.decode()}{err.decode()}"
        return (err if fails else out).decode()


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """kubectl for the administrator of an HTTPS server, and for bob."""
    issued = Authority(tmp_path / "ca").issue("api-server")
    assert issued.certificate_file and issued.key_file and issued.ca_file
    certificates = Certificates(issued.certificate_file, issued.key_file, issued.ca_file)
    server = ApiServer(tokens={BOB: User("bob", (AUTHENTICATED,))}, certificates=certificates)
    await server.start()
    server.write_kubeconfig(tmp_path / "owner")
    write_kubeconfig(tmp_path / "bob", server.url, BOB, issued.ca_file)
    yield Kubectl(tmp_path, server.url)
    await server.stop()


async def test_users_have_their_granted_rights(kubectl: Kubectl) -> None:
    assert (await kubectl("bob", "auth", "can-i", "list", "pods", fails=True)) == ""
    await kubectl("owner", "apply", "-f", "-", stdin=ROLES)

    listed = (await kubectl("bob", "auth", "can-i", "--list")).splitlines()
    refused = await kubectl("bob", "get", "nodes", fails=True)
    roles = (await kubectl("owner", "get", "rolebindings")).splitlines()

    assert (await kubectl("bob", "auth", "can-i", "list", "pods")) == "yes\n"
    assert (await kubectl("bob", "auth", "can-i", "list", "pods", "-n", "kube-system", fails=True)) == ""
    assert (await kubectl("owner", "auth", "can-i", "*", "*")) == "yes\n"
    assert (await kubectl("owner", "auth", "can-i", "delete", "pods", "--as", "bob", fails=True)) == ""
    assert (await kubectl("bob", "get", "pods", "-o", "name")) == ""
    assert any(line.split()[0] == "pods" and "[get list]" in line for line in listed)
    assert 'User "bob" cannot list resource "nodes" in API group "" at the cluster scope' in refused
    assert roles[1].split()[:2] == ["reads", "Role/reads"]
    assert "bob" in await kubectl("bob", "auth", "whoami")


async def test_requests_without_a_token_are_anonymous_over_https(kubectl: Kubectl, tmp_path: Path) -> None:
    trust = ssl.create_default_context(cafile=tmp_path / "ca" / "ca.crt")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        refused = await session.get(kubectl.url + PODS)
        assert refused.status == 403
        assert 'User "system:anonymous" cannot' in (await refused.json())["message"]
        assert (await session.get(f"{kubectl.url}/readyz")).status == 200


async def test_a_service_account_authenticates_by_its_token(kubectl: Kubectl, tmp_path: Path) -> None:
    await kubectl("owner", "create", "serviceaccount", "robot")
    await kubectl("owner", "create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
    token = (await kubectl("owner", "create", "token", "robot")).strip()
    write_kubeconfig(tmp_path / "robot", kubectl.url, token, tmp_path / "ca" / "ca.crt")
    assert "system:serviceaccount:default:robot" in await kubectl("robot", "auth", "whoami")
    assert (await kubectl("robot", "get", "pods", "-o", "name")) == ""
    assert "Forbidden" in await kubectl("robot", "delete", "pod", "none", fails=True)
