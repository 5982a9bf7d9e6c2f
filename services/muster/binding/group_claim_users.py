"""Finds bound pods that use the ResourceClaim of a PodGroup.

The order to deallocate such a claim names the pods that its sender knows. Others may have been bound since, or are back
after a restore of the API server, and the claim is reserved for all of them by the name of their PodGroup.
"""

from typing import Final

from muster.dialects.native import DEFINITION
from muster.kube.api_resources import PODS
from muster.kube.gang_marks import pod_group_of
from muster.kube.malformed_objects import MalformedObjects
from muster.kube.objects import Pod, decode_pod_group
from muster.kube.paths import object_path
from muster.kube.pod_device_claims import device_claims_of
from muster.kube.pod_group_claims import GroupClaims, group_claims
from muster.kube.responses import ApiStatusError
from muster.kube.session import KubeSession
from muster.kube.watch_decoding import WatchDecoder

_GROUP_VERSIONS: Final = (DEFINITION.version, *DEFINITION.older)
_PODS_PER_PAGE: Final = 500
_MAX_PAGE_BYTES: Final = 32 << 20
_ENDED: Final = ("Succeeded", "Failed")


async def bound_user(session: KubeSession, namespace: str, claim: str, group: str, timeout_seconds: float) -> str:
    """The name of a bound pod that has not ended and uses a claim of a PodGroup; empty: there is none. Raises
    KubeUnreachable, ApiStatusError, BadObject, BadResourceVersion.
    """
    claims = await _claims_of(session, namespace, group, timeout_seconds)
    if claims is None:
        return ""
    decoder, next_page = WatchDecoder(PODS, MalformedObjects(PODS.kind)), ""
    while True:
        query = {"fieldSelector": "spec.nodeName!=", "limit": str(_PODS_PER_PAGE)}
        response = await session.request(
            "GET",
            object_path("v1", "pods", namespace),
            query={**query, "continue": next_page} if next_page else query,
            timeout_seconds=timeout_seconds,
            max_bytes=_MAX_PAGE_BYTES,
        )
        if response.status != 200:
            raise ApiStatusError.from_response(response)
        page = decoder.page(response.body)
        for pod in decoder.objects(page.items)[0]:
            if _uses(pod, claims, claim):
                return pod.metadata.name
        if not (next_page := page.continue_token):
            return ""


async def _claims_of(session: KubeSession, namespace: str, group: str, timeout_seconds: float) -> GroupClaims | None:
    """The claims of the PodGroup, in the first version of its API that is served; None: it is gone, or has none."""
    for version in _GROUP_VERSIONS:
        path = object_path(f"{DEFINITION.group}/{version}", DEFINITION.plural, namespace, group)
        response = await session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 200:
            return group_claims(decode_pod_group(response.body))
        if response.status != 404:
            raise ApiStatusError.from_response(response)
    return None


def _uses(pod: Pod, group: GroupClaims, claim: str) -> bool:
    if pod.status.phase in _ENDED or pod_group_of(pod) != group.name:
        return False
    named = device_claims_of(pod.spec.resource_claims, pod.status.resource_claim_statuses, [])
    means = [group.claim_of(each) for each in named]
    return any(each is not None and each.name == claim for each in means)
