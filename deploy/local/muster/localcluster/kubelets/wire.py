"""Pods as kubelets read them off the wire: what scheduling needs, and what running them needs."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.kube.api_resources import ApiResource
from muster.kube.objects import BadObject, Container, Encoded, ObjectMeta, Pod, PodSpec, PodStatus

RUN_SECONDS: Final = "muster.dev/run-seconds"
"""Annotation: the containers end after so many seconds. Without it they run for ever. Local cluster only."""

EXIT_CODE: Final = "muster.dev/exit-code"
"""Annotation: the status with which they end; 0 by default. Local cluster only."""


class RunContainer(Container, rename="camel", frozen=True, gc=False):
    """A container, and what it runs."""

    image: str = ""


class RunSpec(PodSpec, rename="camel", frozen=True, gc=False):
    """spec of a pod that is run."""

    containers: list[RunContainer] | None = None  # type: ignore[assignment]  # nobody writes it
    init_containers: list[RunContainer] | None = None  # type: ignore[assignment]
    restart_policy: str = "Always"
    host_network: bool = False


class RunStatus(PodStatus, rename="camel", frozen=True, gc=False):
    """status of a pod that is run."""

    start_time: str | None = None


class RunPod(Pod, rename="camel", frozen=True, gc=False):
    """A pod on a node."""

    spec: RunSpec = msgspec.field(default_factory=RunSpec)
    status: RunStatus = msgspec.field(default_factory=RunStatus)

    @property
    def path(self) -> str:
        """Where the API serves it."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def run_seconds(self) -> float | None:
        """How long its containers run; None: for ever, also when the annotation is no number."""
        text = self.annotation(RUN_SECONDS)
        try:
            return None if text is None else max(0.0, float(text))
        except ValueError:
            return None

    @property
    def exit_code(self) -> int:
        """The status with which its containers end."""
        text = self.annotation(EXIT_CODE)
        return int(text) if text is not None and text.isascii() and text.isdigit() else 0

    def annotation(self, key: str) -> str | None:
        return (self.metadata.annotations or {}).get(key)


class DeleteOptions(Struct, rename="camel"):
    """Body of the last deletion of a pod: nothing is left of it on the node."""

    preconditions: dict[str, str]
    grace_period_seconds: int = 0


_pod: Final = msgspec.json.Decoder(RunPod)


def decode_run_pod(data: Encoded) -> RunPod:
    """Read a pod. One that does not fit is nobody's. Raises BadObject if it is no object at all."""
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
