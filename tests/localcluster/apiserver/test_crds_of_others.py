"""CRDs of other projects for the kinds of a dialect: existing ones are used and kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from builders.clusterstate.history import settle
from builders.kube.client import CRDS, ApiClient
from builders.wait import WAIT_SECONDS
from muster.clusterstate.state import ClusterState
from muster.config.settings import KubeSettings
from muster.dialects import coscheduling
from muster.kube.api_resources import definitions
from muster.kube.informer import Informer
from muster.kube.object_changes import ObjectChanges
from muster.kube.session import KubeSession
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.manifests import apply_manifests, load_manifests

DEPLOYED = Path(__file__).parents[3] / "deploy" / "crds"
NAME = "podgroups.scheduling.x-k8s.io"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
EXISTING: dict[str, Any] = {
    "metadata": {"name": NAME, "annotations": {"example.com/owner": "the scheduler-plugins"}},
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": {"kind": "PodGroup", "plural": "podgroups", "shortNames": ["pg"]},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"minMember": {"type": "integer", "minimum": 2}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
async def session(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeSession]:
    server.write_kubeconfig(tmp_path / "config")
    session = await KubeSession.connect(KubeSettings(kubeconfig=tmp_path / "config"))
    yield session
    await session.close()


async def test_an_existing_definition_is_kept_and_others_are_added(api: ApiClient, session: KubeSession) -> None:
    before = await api.created(CRDS, EXISTING)
    await apply_manifests(session, load_manifests(DEPLOYED))
    assert (await api.get(f"{CRDS}/{NAME}")).body == before
    assert set(await api.names(CRDS)) == set(map(_name, DEPLOYED.glob("*.yaml")))
    assert (await api.post(GROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 1}})).status == 422


async def test_gangs_are_read_by_the_existing_definition(api: ApiClient, session: KubeSession) -> None:
    await api.created(CRDS, EXISTING)
    state, streamed = ClusterState(["muster"]), asyncio.Event()
    settle(state)

    def take(changes: ObjectChanges[Any]) -> None:
        state.apply(changes)
        if state.gangs.facts:
            streamed.set()

    task = asyncio.create_task(Informer(session, definitions(coscheduling.DEFINITION), take).run())
    await api.created(GROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 3, "scheduleTimeoutSeconds": 7}})
    async with asyncio.timeout(WAIT_SECONDS):
        await streamed.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    gang = state.gangs.facts["coscheduling/default/g"]
    assert (gang.minimum, gang.waiting_time_seconds, gang.problems) == (3, coscheduling.DEFAULT_WAITING_SECONDS, ())


def _name(path: Path) -> str:
    """Definition <plural>.<group> of the file <group>_<plural>.yaml."""
    group, _, plural = path.stem.rpartition("_")
    return f"{plural}.{group}"
