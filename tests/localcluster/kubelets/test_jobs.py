"""batch/v1 Jobs: the job controller creates pods, the kubelets run them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from builders.e2e.local_cluster import running_kubelets
from builders.kube.client import PODS, ApiClient, Reply, api_client
from muster.localcluster.apiserver import ApiServer
from muster.localcluster.kubelets import simulated_nodes

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
async def api(tmp_path: Any) -> AsyncIterator[ApiClient]:
    server = ApiServer()
    await server.start()
    async with api_client(server.url) as client, running_kubelets(server, tmp_path, simulated_nodes(1)):
        yield client
    await server.stop()


def job(*, run_seconds: str = "0", policy: str = "Never", **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"muster.dev/run-seconds": run_seconds}},
        # On the node from the start: no scheduler takes part.
        "spec": {"restartPolicy": policy, "nodeName": "node-00", "containers": [{"name": "main", "image": "i:1"}]},
    }
    return {"metadata": {"name": "j"}, "spec": {"template": template, **spec}}


def _condition(name: str) -> Callable[[Reply], bool]:
    return lambda reply: name in [each["type"] for each in reply.body.get("status", {}).get("conditions") or ()]


async def test_a_job_runs_until_enough_have_succeeded(api: ApiClient) -> None:
    await api.created(JOBS, job(completions=5, parallelism=2))

    ended = (await api.until(f"{JOBS}/j", _condition("Complete"))).body["status"]

    assert ended["succeeded"] == 5 and "active" not in ended and ended["completionTime"]
    pods = (await api.get(PODS)).body["items"]
    assert len(pods) == 5
    assert {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in pods} == {"j"}
    assert all(pod["metadata"]["ownerReferences"][0]["controller"] for pod in pods)


async def test_every_index_succeeds_once(api: ApiClient) -> None:
    await api.created(JOBS, job(completions=4, parallelism=4, completionMode="Indexed"))

    ended = (await api.until(f"{JOBS}/j", _condition("Complete"))).body["status"]

    pods = (await api.get(PODS)).body["items"]
    index = "batch.kubernetes.io/job-completion-index"
    assert sorted(pod["metadata"]["annotations"][index] for pod in pods) == ["0", "1", "2", "3"]
    assert ended["completedIndexes"] == "0-3"
    environment = {each["name"]: each["value"] for each in pods[0]["spec"]["containers"][0]["env"]}
    assert environment["JOB_COMPLETION_INDEX"] == pods[0]["metadata"]["annotations"][index]


async def test_a_deleted_pod_of_a_job_is_replaced(api: ApiClient) -> None:
    await api.created(JOBS, job(run_seconds="3600"))
    [first] = (await api.until(PODS, lambda reply: len(reply.body["items"]) == 1)).body["items"]

    await api.delete(f"{PODS}/{first['metadata']['name']}")

    def replaced(reply: Reply) -> bool:
        names = [pod["metadata"]["name"] for pod in reply.body["items"]]
        return len(names) == 1 and names != [first["metadata"]["name"]]

    await api.until(PODS, replaced)


async def test_deleting_a_job_deletes_its_pods(api: ApiClient) -> None:
    await api.created(JOBS, job(run_seconds="3600", parallelism=2, completions=2))
    await api.until(PODS, lambda reply: len(reply.body["items"]) == 2)

    await api.delete(f"{JOBS}/j")

    await api.until(PODS, lambda reply: reply.body["items"] == [])


async def test_pods_of_a_job_may_not_be_restarted_always(api: ApiClient) -> None:
    always, unsaid = job(policy="Always"), job()
    del unsaid["spec"]["template"]["spec"]["restartPolicy"]

    refused, unspecified = await api.post(JOBS, always), await api.post(JOBS, unsaid)

    assert refused.status == 422 and "spec.template.spec.restartPolicy: Unsupported value" in refused.message
    assert unspecified.status == 422 and 'Required value: valid values: "OnFailure", "Never"' in unspecified.message
