"""The table of controllers, as they are built and started."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from interop.gang import JSON, KUEUE_RACKS, RACK

VOLCANO_NAMESPACE: Final = "volcano-system"
GO: Final = Path(__file__).parents[2] / "tools" / "go"


@dataclass(frozen=True)
class Place:
    """Where one controller runs: its ports on this machine and its files."""

    directory: Path
    """Its log, its configuration and its webhooks' certificate."""
    kubeconfig: Path
    health_port: int
    webhook_port: int

    @property
    def certificates(self) -> Path:
        """Directory of tls.crt and tls.key, which controller-runtime finds below TMPDIR."""
        return self.directory / "k8s-webhook-server" / "serving-certs"

    @property
    def configuration(self) -> Path:
        """The configuration file, if it has one."""
        return self.directory / "configuration.json"

    @property
    def etc(self) -> Path:
        """Directory that the process sees as /etc, if it needs one of its own."""
        return self.directory / "etc"

    @property
    def spark(self) -> Path:
        """The Spark distribution that the Spark operator calls."""
        return self.directory / "spark"


@dataclass(frozen=True)
class Controller:
    """A controller that is built from its Go module."""

    name: str
    """Also of its program, and of its directory in tools/go."""
    module: str
    """Go module, required there in the pinned version."""
    notes: str
    """How it runs here, as Markdown."""
    arguments: Callable[[Place], Sequence[str]] = lambda place: ()
    configuration: Callable[[Place], JSON] | None = None
    environment: Callable[[Place], Mapping[str, str]] = lambda place: {}
    scripts: Callable[[Place], Mapping[Path, str]] = lambda place: {}
    """Programs that it calls, by the paths where it looks for them."""
    crds: tuple[str, ...] = ()
    """Manifests in the module, as glob patterns."""
    newest_versions_only: bool = False
    """Its CRDs have versions that only its webhooks can convert: they are registered with the newest one."""
    webhooks: tuple[str, ...] = ()
    """Webhook configurations in the module; empty: they are not registered."""
    certificates_below_etc: str = ""
    """Directory below /etc where it looks for a certificate of its metrics: it runs with an /etc of its own."""
    only_webhooks: tuple[str, ...] = ()
    """Names of the webhooks that are registered; empty: all."""
    object_selectors: Mapping[str, JSON] = field(default_factory=dict)
    """Selectors by webhook name, which the module adds by kustomize: without them all pods would be sent."""
    needs: tuple[str, ...] = ()
    """Other controllers that it uses."""
    objects: tuple[JSON, ...] = ()
    """Objects of the cluster."""
    ready_path: str = "/readyz"
    health_port: int = 0
    """The port where it answers, if that cannot be chosen."""


def of_controller_runtime(api_version: str, **more: object) -> Callable[[Place], JSON]:
    """A configuration file in the format that several controllers share: own certificates, no leader election, so that
    a killed process is replaced at once.
    """

    def configuration(place: Place) -> JSON:
        return {
            "apiVersion": api_version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": place.webhook_port, "certDir": str(place.certificates)},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{place.health_port}"},
            **more,
        }

    return configuration


def _with_label(label: str, *webhooks: str) -> dict[str, JSON]:
    return {name: {"matchExpressions": [{"key": label, "operator": "Exists"}]} for name in webhooks}


_WITH_WEBHOOKS: Final = "CRDs and webhooks of the module, with certificates that the test issues"

KUBE_CONTROLLER_MANAGER: Final = Controller(
    "kube-controller-manager",
    "k8s.io/kubernetes",
    "part of the control plane, with one ServiceAccount per controller and the feature gate `WorkloadWithJob`: every"
    " Job has a native PodGroup, which other marks of its pods override",
)
JOBSET: Final = Controller(
    "jobset",
    "sigs.k8s.io/jobset",
    _WITH_WEBHOOKS,
    arguments=lambda place: ["--config", str(place.configuration)],
    configuration=of_controller_runtime("config.jobset.x-k8s.io/v1alpha1"),
    crds=("config/components/crd/bases/*.yaml",),
    webhooks=("config/components/webhook/manifests.yaml",),
    object_selectors=_with_label("jobset.sigs.k8s.io/jobset-name", "mpod.kb.io", "vpod.kb.io"),
)
LWS: Final = Controller(
    "lws",
    "sigs.k8s.io/lws",
    f"{_WITH_WEBHOOKS}; `gangSchedulingManagement.schedulerProvider: volcano`",
    arguments=lambda place: ["--config", str(place.configuration)],
    configuration=of_controller_runtime(
        "config.lws.x-k8s.io/v1alpha1", gangSchedulingManagement={"schedulerProvider": "volcano"}
    ),
    crds=("config/crd/bases/*.yaml",),
    webhooks=("config/webhook/manifests.yaml",),
    object_selectors=_with_label("leaderworkerset.sigs.k8s.io/name", "mpod.kb.io", "vpod.kb.io"),
)

_KUEUE_VERSION: Final = "kueue.x-k8s.io/v1beta2"


def kueue_quota(name: str, cpus: int = 1000, **flavor: object) -> tuple[JSON, JSON]:
    """A ClusterQueue with CPUs of a flavor of the same name."""
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
    metadata = {"name": name}
    return (
        {"apiVersion": _KUEUE_VERSION, "kind": "ResourceFlavor", "metadata": metadata, "spec": flavor},
        {"apiVersion": _KUEUE_VERSION, "kind": "ClusterQueue", "metadata": metadata, "spec": spec},
    )


KUEUE: Final = Controller(
    "kueue",
    "sigs.k8s.io/kueue",
    f"with JobSet; {_WITH_WEBHOOKS}, except those that convert old versions, which its CRDs do not have here;"
    " ClusterQueues with enough quota, one of them with a Topology; `waitForPodsReady` evicts after 20 s",
    arguments=lambda place: ["--config", str(place.configuration)],
    configuration=of_controller_runtime(
        "config.kueue.x-k8s.io/v1beta2",
        integrations={"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"]},
        featureGates={"VisibilityOnDemand": False},
        waitForPodsReady={"timeout": "20s", "requeuingStrategy": {"backoffBaseSeconds": 1, "timestamp": "Eviction"}},
    ),
    certificates_below_etc="kueue/metrics/certs",
    crds=("config/components/crd/bases/*.yaml",),
    newest_versions_only=True,
    webhooks=("config/components/webhook/manifests.yaml",),
    only_webhooks=(
        *("mjob.kb.io", "vjob.kb.io", "mjobset.kb.io", "vjobset.kb.io", "mpod.kb.io", "vpod.kb.io"),
        *("mclusterqueue.kb.io", "vclusterqueue.kb.io", "mworkload.kb.io", "vworkload.kb.io"),
    ),
    object_selectors=_with_label("kueue.x-k8s.io/queue-name", "mpod.kb.io", "vpod.kb.io"),
    needs=("jobset",),
    objects=(
        *kueue_quota("interop"),
        {
            "apiVersion": _KUEUE_VERSION,
            "kind": "Topology",
            "metadata": {"name": "interop"},
            "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
        },
        *kueue_quota("interop-racks", nodeLabels={KUEUE_RACKS: "true"}, topologyName="interop"),
    ),
)
TRAINER: Final = Controller(
    "trainer",
    "github.com/kubeflow/trainer/v2",
    f"with JobSet; {_WITH_WEBHOOKS}",
    arguments=lambda place: ["--config", str(place.configuration)],
    configuration=lambda place: {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": place.webhook_port},
        "metrics": {"bindAddress": "0", "secureServing": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{place.health_port}"},
    },
    crds=("manifests/base/crds/trainer*.yaml",),
    webhooks=("manifests/base/webhook/manifests.yaml",),
    needs=("jobset",),
)
MPI_OPERATOR: Final = Controller(
    "mpi-operator",
    "github.com/kubeflow/mpi-operator",
    "CRD of the module; it has no webhooks. Leader election cannot be turned off, so a killed operator resumes after"
    " 15 s; `--gang-scheduling=muster`",
    arguments=lambda place: [
        *("--gang-scheduling", "muster", "--lock-namespace", "default"),
        *("--kube-api-qps", "100", "--kube-api-burst", "100"),
    ],
    crds=("manifests/base/kubeflow.org_mpijobs.yaml",),
    ready_path="/healthz",
    health_port=8080,
)
KUBERAY: Final = Controller(
    "kuberay",
    "github.com/ray-project/kuberay/ray-operator",
    "CRDs of the module; the operator does not use webhooks by default; `--batch-scheduler=scheduler-plugins`",
    arguments=lambda place: [
        "--batch-scheduler=scheduler-plugins",
        "--enable-leader-election=false",
        "--metrics-addr=0",
        f"--health-probe-bind-address=127.0.0.1:{place.health_port}",
    ],
    crds=("config/crd/bases/*.yaml",),
)
SPARK_OPERATOR: Final = Controller(
    "spark-operator",
    "github.com/kubeflow/spark-operator/v2",
    "CRDs of the module, without its webhooks; `--enable-batch-scheduler --kube-scheduler-names=muster`. Instead of"
    " Spark, a stand-in for `spark-submit` creates the pods of drivers, and the test those of executors while their"
    " driver runs",
    arguments=lambda place: [
        *("controller", "start", "--enable-ui-service=false"),
        *("--enable-batch-scheduler", "--kube-scheduler-names=muster"),
        *("--kube-api-qps=100", "--kube-api-burst=100"),
        f"--health-probe-bind-address=127.0.0.1:{place.health_port}",
    ],
    # The operator only passes the server's address on.
    environment=lambda place: {
        "SPARK_HOME": str(place.spark),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "PYTHONPATH": str(GO.parents[1] / "tests"),
    },
    scripts=lambda place: {
        place.spark / "bin" / "spark-submit": f'#!/bin/sh\nexec {sys.executable} -m interop.spark.submit "$@"\n'
    },
    crds=("config/crd/bases/*.yaml",),
)
VOLCANO: Final = Controller(
    "volcano",
    "volcano.sh/volcano",
    "controllers of jobs, queues and PodGroups, without Volcano's webhooks, and without its scheduler, which Muster"
    " replaces",
    arguments=lambda place: [
        f"--kubeconfig={place.kubeconfig}",
        "--leader-elect=false",
        "--controllers=job-controller,queue-controller,gc-controller,pg-controller",
        "--scheduler-name=muster",
        "--enable-healthz",
        f"--healthz-address=127.0.0.1:{place.health_port}",
        *("--kube-api-qps=100", "--kube-api-burst=100"),
    ],
    crds=("config/crd/volcano/bases/*.yaml",),
    ready_path="/healthz",
    objects=(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "default"},
            "spec": {"weight": 1},
        },
    ),
)
VOLCANO_SCHEDULER: Final = Controller(
    "volcano-scheduler",
    "volcano.sh/volcano",
    "Volcano's scheduler beside Muster and Volcano's controllers. Its plugins `overcommit`, `proportion` and `drf` are"
    " left out: they hold Jobs back before Muster sees their pods. With leader election, by whose Lease Muster"
    " recognises a scheduler that is no pod",
    arguments=lambda place: [
        f"--kubeconfig={place.kubeconfig}",
        *("--scheduler-name=volcano", f"--scheduler-conf={place.configuration}", "--cache-dumper=false"),
        *("--leader-elect=true", f"--leader-elect-resource-namespace={VOLCANO_NAMESPACE}"),
        # A killed scheduler is followed by the next one when its Lease has run out.
        *("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"),
        "--enable-healthz",
        f"--healthz-address=127.0.0.1:{place.health_port}",
        "--listen-address=127.0.0.1:0",
    ],
    configuration=lambda place: {
        "actions": "enqueue, allocate, backfill",
        "tiers": [
            {"plugins": [{"name": name} for name in ("priority", "gang", "conformance")]},
            {"plugins": [{"name": name} for name in ("predicates", "nodeorder")]},
        ],
    },
    needs=("volcano",),
    ready_path="/healthz",
    objects=({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": VOLCANO_NAMESPACE}},),
)

CONTROLLERS: Final = (
    KUBE_CONTROLLER_MANAGER,
    JOBSET,
    LWS,
    KUEUE,
    TRAINER,
    MPI_OPERATOR,
    KUBERAY,
    SPARK_OPERATOR,
    VOLCANO,
    VOLCANO_SCHEDULER,
)
SCHEDULER_NAMES: Final = ("muster", "scheduler-plugins-scheduler")
"""Scheduler names that Muster serves: its own, and the one that KubeRay forces."""


def closure(*names: str) -> list[Controller]:
    """Controllers by name and those that they need, in the order of the table."""
    wanted = set(names)
    for each in reversed(CONTROLLERS):  # those that are needed stand before
        if each.name in wanted:
            wanted.update(each.needs)
    return [each for each in CONTROLLERS if each.name in wanted]


def version_of(controller: Controller) -> str:
    """The pinned version."""
    directory = "kubernetes" if controller is KUBE_CONTROLLER_MANAGER else controller.name
    found = re.search(rf"^\t{re.escape(controller.module)} (v\S+)", (GO / directory / "go.mod").read_text(), re.M)
    assert found is not None, f"tools/go/{directory}/go.mod does not require {controller.module}"
    return found[1]
