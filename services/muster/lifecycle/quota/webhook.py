"""The validating admission webhook for quota: reviews of new pods."""

from typing import Final

from muster.kube.objects import decode_pod
from muster.kube.resource_quota import pod_usage
from muster.lifecycle.admission_server import AdmissionRequest, AdmissionServer, CannotDecide, Decision
from muster.lifecycle.informers import SharedInformers
from muster.lifecycle.metrics import QUOTA_REVIEW_SECONDS
from muster.lifecycle.quota.admission import Admission, PodReview
from muster.lifecycle.quota.pod_groups import quota_gang_id
from muster.rpc.https import ReloadedTls

PATH: Final = "/quota"


def quota_webhook(address: str, tls: ReloadedTls, admission: Admission, informers: SharedInformers) -> AdmissionServer:
    """The server of the webhook. Ready once the informers have synced."""

    async def decide(request: AdmissionRequest) -> Decision:
        review = _pod_review(request)
        if review is None:
            return Decision()
        if not informers.synced.is_set():
            raise CannotDecide("informers have not synced yet: try again")
        return await admission.review(review)

    ready, seconds = informers.synced.is_set, QUOTA_REVIEW_SECONDS
    return AdmissionServer("quota", address, PATH, tls, decide, is_ready=ready, seconds=seconds)


def _pod_review(request: AdmissionRequest) -> PodReview | None:
    """Returns the pod to be created; None if the request is about anything else. Raises BadObject."""
    is_pod = (request.resource.group, request.resource.resource) == ("", "pods")
    if not is_pod or request.sub_resource or request.operation != "CREATE":
        return None
    pod = decode_pod(request.object)
    metadata = pod.metadata
    name = metadata.name or request.name or metadata.uid
    return PodReview(
        namespace=request.namespace or metadata.namespace,
        uid=metadata.uid or request.uid,
        name=name,
        usage=pod_usage(pod),
        gang_id=quota_gang_id(pod),
        dry_run=request.dry_run,
    )
