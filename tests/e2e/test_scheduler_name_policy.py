"""The chart's admission policies on a real API server: which pods get Muster's scheduler name, and a gang by Kueue."""

import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from builders.deploy.admission_policies import KUEUE_LABEL, LABEL, policies_and_bindings
from builders.e2e.cluster import real_kubeconfig
from builders.wait import eventually
from muster.config.settings import KubeSettings
from muster.dialects.kueue_workload import ASKED_FOR, WORKLOAD
from muster.kube.session import KubeSession

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]

DEFAULT = "default-scheduler"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
SECONDS = 60.0
ADMITTED = {WORKLOAD: "job-x"}
"""The annotation that Kueue writes on the pods that it has admitted."""

COSCHEDULING = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
NAMED: dict[str, JSON] = {
    "koordinator": {"annotations": {"gang.scheduling.koordinator.sh/name": "g"}},
    "koordinator's label": {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}},
    "lightweight": {"labels": {"pod-group.scheduling.sigs.k8s.io/name": "g"}},
    "coscheduling": COSCHEDULING,
    "volcano": {"annotations": {"scheduling.k8s.io/group-name": "g"}},
    "sakkara": {"labels": {"sakkara.group.name": "g"}},
    "kueue": {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}},
    "kueue's workload": {"annotations": {ASKED_FOR: "true"}},
}


class Server:
    """An API server with both policies, a namespace with both labels, one with neither and one with Kueue's alone."""

    def __init__(self, session: KubeSession) -> None:
        self.session = session
        self.labelled, self.other, self.kueue = (
            f"{name}-{uuid.uuid4().hex[:8]}" for name in ("labelled", "other", "kueue")
        )

    async def create(self, path: str, body: JSON, **query: str) -> JSON:
        answer = await self.session.request(
            "POST", path, query=query, body=msgspec.json.encode(body), timeout_seconds=SECONDS
        )
        assert answer.status == 201, answer.body
        created: JSON = msgspec.json.decode(answer.body)
        return created

    async def scheduler_of(self, metadata: JSON, *, namespace: str = "", **spec: Any) -> str:
        """The scheduler name of a pod as the API server would create it."""
        return str((await self.pod(metadata, namespace=namespace, **spec))["spec"]["schedulerName"])

    async def pod(self, metadata: JSON, *, namespace: str = "", **spec: Any) -> JSON:
        """A pod as the API server would create it."""
        where = namespace or self.labelled
        container = {"name": "main", "image": "x"}
        pod = {"metadata": {"generateName": "pod-", **metadata}, "spec": {"containers": [container], **spec}}
        return await self.create(f"/api/v1/namespaces/{where}/pods", pod, dryRun="All")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A server on which the policy is in force."""
    kubeconfig = real_kubeconfig(request.config)
    if kubeconfig is None:
        pytest.skip("the embedded API server has no admission policies: run make test-kubernetes")
    session = await KubeSession.connect(KubeSettings(kubeconfig=kubeconfig))
    server = Server(session)
    paths = []
    try:
        if (await session.request("GET", POLICIES, timeout_seconds=SECONDS)).status == 404:
            pytest.skip("this API server does not serve MutatingAdmissionPolicy admissionregistration.k8s.io/v1")
        for name, of_gangs, of_kueue in (
            (server.labelled, "true", "true"),
            (server.other, "false", "false"),
            (server.kueue, "false", "true"),
        ):
            labels = {LABEL: of_gangs, KUEUE_LABEL: of_kueue}
            await server.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
            paths.append(f"/api/v1/namespaces/{name}")
        for policies in policies_and_bindings("", "schedulerNamePolicy.enabled", "kueue.workloads"):
            for path, each in zip((POLICIES, BINDINGS), policies, strict=True):
                await server.create(path, each)
                paths.append(f"{path}/{each['metadata']['name']}")

        async def in_force() -> bool:
            try:
                named = await server.scheduler_of(COSCHEDULING) == "muster"
                return named and await asks(server, ADMITTED) == "true"
            except AssertionError:  # the namespace has no service account yet
                return False

        await eventually(in_force, "the policy is in force", seconds=SECONDS)
        for name in (server.other, server.kueue):
            await eventually(partial(admits, server, name), "pods are admitted", seconds=SECONDS)
        yield server
    finally:
        for path in reversed(paths):
            await session.request("DELETE", path, timeout_seconds=SECONDS)
        await session.close()


async def asks(server: Server, annotations: JSON, namespace: str = "") -> str | None:
    """The annotation that asks for a gang, on a pod created with these annotations; None: it has none."""
    pod = await server.pod({"annotations": annotations}, namespace=namespace)
    found: str | None = pod["metadata"]["annotations"].get(ASKED_FOR)
    return found


async def admits(server: Server, namespace: str) -> bool:
    """Whether the namespace has a service account for pods."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    return (await server.session.request("GET", path, timeout_seconds=SECONDS)).status == 200


@pytest.mark.parametrize("metadata", NAMED.values(), ids=NAMED)
async def test_a_pod_that_names_a_gang_gets_the_scheduler_name(server: Server, metadata: JSON) -> None:
    assert await server.scheduler_of(metadata) == "muster"
    assert await server.scheduler_of(metadata, schedulerName=DEFAULT) == "muster"
    assert await server.scheduler_of(metadata, namespace=server.other) == DEFAULT


async def test_a_pod_of_a_native_pod_group_gets_the_scheduler_name(server: Server) -> None:
    group = {"podGroupName": "g"}
    pod: JSON = {"metadata": {"generateName": "pod-"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    pod["spec"]["schedulingGroup"] = group
    created = await server.create(f"/api/v1/namespaces/{server.labelled}/pods", pod, dryRun="All")
    if created["spec"].get("schedulingGroup") != group:
        pytest.skip("this API server drops spec.schedulingGroup: its feature gate is off")
    assert created["spec"]["schedulerName"] == "muster"


async def test_pods_without_a_gang_with_another_scheduler_or_a_node_stay_as_they_are(server: Server) -> None:
    assert await server.scheduler_of({"labels": {"app": "web"}, "annotations": {"note": "x"}}) == DEFAULT
    assert await server.scheduler_of({}) == DEFAULT
    assert await server.scheduler_of(COSCHEDULING, schedulerName="volcano") == "volcano"
    assert await server.scheduler_of(COSCHEDULING, nodeName="n1") == DEFAULT


async def test_pods_that_kueue_has_admitted_ask_for_a_gang_and_get_the_scheduler_name(server: Server) -> None:
    assert await server.scheduler_of({"annotations": ADMITTED}) == "muster"
    assert await asks(server, ADMITTED) == "true"
    assert await asks(server, {**ADMITTED, ASKED_FOR: "false"}) == "false"
    assert await asks(server, ADMITTED, server.other) is None
    assert await asks(server, {"note": "x"}) is None


async def test_pods_that_kueue_has_admitted_keep_their_scheduler_or_node(server: Server) -> None:
    admitted = {"annotations": ADMITTED}
    assert await server.scheduler_of(admitted, schedulerName="volcano") == "volcano"
    assert await server.scheduler_of(admitted, nodeName="n1") == DEFAULT


async def test_without_the_label_of_scheduler_names_admitted_pods_only_ask_for_a_gang(server: Server) -> None:
    assert await server.scheduler_of({"annotations": ADMITTED}, namespace=server.kueue) == DEFAULT
    assert await asks(server, ADMITTED, server.kueue) == "true"
