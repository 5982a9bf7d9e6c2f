"""A console that authenticates people, with an API server that knows some."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from builders.console.guarded import OURS, THEIRS, TOKENS, Guarded
from builders.console.services import gang, services
from builders.kube.client import api_client
from builders.kube.rbac import grant, rule, user
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.apiserver.kubeconfigs import write_kubeconfig
from muster.localcluster.manifests import apply_manifests
from muster.localcluster.permissions import find_permissions, grants, read_permissions


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """ann may read pods in the namespace "ours", root everything, nobody nothing."""
    server = ApiServer(tokens=TOKENS)
    await server.start()
    async with api_client(server.url) as api, services() as there:
        administrator = tmp_path / "administrator"
        server.write_kubeconfig(administrator)
        session = await KubeSession.connect(KubeSettings(kubeconfig=administrator))
        await apply_manifests(session, grants(read_permissions(find_permissions())))
        await session.close()
        await api.created("/api/v1/namespaces", {"metadata": {"name": "ours"}})
        await grant(api, "readers", rule("get list", "pods"), to=user("ann"), namespace="ours")
        await grant(api, "operators", rule("get", "pods nodes"), to={"kind": "Group", "name": "operators"})
        kubeconfig = tmp_path / "console"
        write_kubeconfig(kubeconfig, server.url, "console-token")
        there.coordinator.put(gang(OURS), gang(THEIRS, priority=5))
        settings = there.settings(authentication="token", kube=KubeSettings(kubeconfig=kubeconfig))
        yield Guarded(there, server, api, settings, kubeconfig)
    await server.stop()
