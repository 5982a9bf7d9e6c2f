"""Pod fields that kubelets read: those for scheduling and those for running."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from muster.kube.api_resources import ApiResource
from muster.kube.objects import NOTHING, BadObject, Container, Encoded, ObjectMeta, Pod, PodSpec, PodStatus

RUN_SECONDS: Final = "muster.dev/run-seconds"
"""Annotation: run time of the containers in seconds; default forever. Local cluster only."""
STOP_SECONDS: Final = "muster.dev/stop-seconds"
"""Annotation: time the containers of a deleted pod take to stop; default none. Local cluster only."""


class RunContainer(Container, rename="camel", frozen=True, gc=False):
    """Container with its image."""

    image: str = ""


class RunSpec(PodSpec, rename="camel", frozen=True, gc=False):
    """Pod spec."""

    containers: list[RunContainer] | None = None  # type: ignore[assignment]  # never assigned
    init_containers: list[RunContainer] | None = None  # type: ignore[assignment]
    restart_policy: str = "Always"
    host_network: bool = False


class RunStatus(PodStatus, rename="camel", frozen=True, gc=False):
    """Pod status."""

    start_time: str | None = None
    resource_claim_statuses: Raw = NOTHING
    extended_resource_claim_status: Raw = NOTHING


class RunPod(Pod, rename="camel", frozen=True, gc=False):
    """Pod on a node."""

    spec: RunSpec = msgspec.field(default_factory=RunSpec)
    status: RunStatus = msgspec.field(default_factory=RunStatus)

    @property
    def path(self) -> str:
        """URL path of the pod."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def run_seconds(self) -> float | None:
        """Run time of the containers; None: forever, also if the annotation is invalid."""
        return self._seconds(RUN_SECONDS)

    @property
    def stop_seconds(self) -> float:
        """Time from the pod's deletion to the end of its containers."""
        return self._seconds(STOP_SECONDS) or 0.0

    def _seconds(self, annotation: str) -> float | None:
        text = (self.metadata.annotations or {}).get(annotation)
        try:
            return None if text is None else max(0.0, float(text))
        except ValueError:
            return None


class DeleteOptions(Struct, rename="camel"):
    """Body of the final delete request for a pod."""

    preconditions: dict[str, str]
    grace_period_seconds: int = 0


_pod: Final = msgspec.json.Decoder(RunPod)


def decode_run_pod(data: Encoded) -> RunPod:
    """Decode a pod; an invalid one has only metadata, so no node. Raises BadObject if it is no object."""
    try:
        return _pod.decode(data)
    except msgspec.DecodeError:
        pass
    try:
        return RunPod(metadata=msgspec.json.decode(data, type=_Named).metadata)
    except msgspec.DecodeError as error:
        raise BadObject(f"not a pod: {error}") from error


class _Named(Struct):
    metadata: ObjectMeta


PODS: Final[ApiResource[Any]] = ApiResource("pods", "/api/v1/pods", RunPod, decode_run_pod)
