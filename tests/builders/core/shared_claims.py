"""ResourceClaims that pods of scenarios share: what cluster-state makes of them, for pods, claims and nodes.

The name of such a claim begins with SHARED. Of the pods of a gang that use it, the first requests its devices; all are
beside each other until it is allocated, and then on its node.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from builders.core.objects import GPUS, HOST, Cluster, pod_class
from builders.gangs.labels import labelled
from muster.devices.facts import Claim
from muster.gangs.facts import PodClass, PodFacts, PodTerm

SHARED = "shared"


def is_shared(claim: str) -> bool:
    """Whether pods share the claim of this name."""
    return claim.startswith(SHARED)


def users_of(claim: Claim, pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Pods that use the claim, bound ones first, then the oldest; not those that have ended."""
    found = (pod for pod in pods if pod.namespace == claim.namespace and claim.name in pod.device_claims)
    return sorted(
        (pod for pod in found if not pod.phase.ended), key=lambda pod: (not pod.node, pod.created_seconds, pod.uid)
    )


def is_counted(claim: Claim, users: Iterable[PodFacts]) -> bool:
    """Pods request the devices of the allocated claim: it is of one gang, and reserved for nobody else."""
    known = {uid for pod in users for uid in (pod.uid, pod.group_uid)}
    return len({pod.gang for pod in users}) == 1 and set(claim.reserved_for) <= known


def is_idle(claim: Claim, users: Iterable[PodFacts]) -> bool:
    """The claim is reserved for a PodGroup only, of which no pod is bound."""
    groups = {pod.group_uid for pod in users if pod.group_uid}
    return len(claim.reserved_for) == 1 and set(claim.reserved_for) <= groups and not any(pod.node for pod in users)


def sharing_class(claim: Claim, pod: PodFacts, users: list[PodFacts], cluster: Cluster) -> PodClass:
    """The class of a pod that shares the claim with others."""
    counted = claim.allocation is None or is_counted(claim, users)
    first = next((each.uid for each in users if each.gang == pod.gang), "")
    wanted = claim.requests[0].alternatives[0].count if counted and first == pod.uid else 0
    plain = pod_class(cluster.cpu(pod) // 1000)
    selector = claim.allocation.node_selector if claim.allocation is not None else None
    tied = claim.allocation is None and len(users) > 1
    where = "-tied" if tied else "".join(f"-on-{term.fields[0].values[0]}" for term in selector or ())
    return PodClass(
        id=f"{plain.id}-{claim.name}-{wanted}{where}",
        requests=tuple(sorted((*plain.requests, *(((GPUS, wanted),) if wanted else ())))),
        volumes=(selector,) if selector is not None else (),
        shared_claims=(PodTerm(claim.name, HOST),) if tied else (),
    )


def with_shares(
    cluster: Cluster, claims: Iterable[Claim], pods: Mapping[str, PodFacts] | None = None
) -> tuple[list[PodFacts], list[PodClass], list[Claim]]:
    """Pods of which the class differs, these classes, and claims of which it differs whether they are idle. `pods`: by
    default those of the cluster.
    """
    pods = cluster.pods if pods is None else pods
    changed_pods, classes, changed_claims = [], [], []
    for claim in (each for each in claims if is_shared(each.name)):
        users = users_of(claim, pods.values())
        for pod in users:
            wanted = sharing_class(claim, pod, users, cluster)
            if pod.class_id != wanted.id or wanted.id not in cluster.classes:
                changed_pods.append(replace(pod, class_id=wanted.id))
                classes.append(wanted)
        if claim.idle is not is_idle(claim, users):
            changed_claims.append(replace(claim, idle=not claim.idle))
    return changed_pods, classes, changed_claims


def label_of(claim: str, label_set: str) -> str:
    """The label set with the label by which the pods that share the claim are selected."""
    return labelled(*filter(None, (claim, *label_set.split("+"))))
