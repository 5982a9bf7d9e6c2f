"""Settings of cluster-state."""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode, SettingsConfigDict

from muster.config.settings import CLUSTER_STATE_PORT, Address, KubeSettings, Names, ServiceSettings, listens_on
from muster.topology.constraints import is_level_name
from muster.topology.trees import MAX_LEVELS, NODE_LEVEL

_LABEL_VALUE: Final = r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?"
_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)

_REQUIREMENT: Final = (
    rf"\s*(!\s*{_LABEL_KEY.pattern}|{_LABEL_KEY.pattern}(\s*(=|==|!=)\s*{_LABEL_VALUE}|"
    rf"\s+(in|notin)\s*\(\s*{_LABEL_VALUE}(\s*,\s*{_LABEL_VALUE})*\s*\))?)\s*"
)
_REQUIREMENTS: Final = re.compile(rf"{_REQUIREMENT}(,{_REQUIREMENT})*", re.ASCII)

_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?", re.ASCII)


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _levels(given: tuple[str, ...]) -> tuple[str, ...]:
    names = [entry.partition("=")[0] for entry in given]
    for entry, name in zip(given, names, strict=True):
        if not is_level_name(name) or not _LABEL_KEY.fullmatch(_key(entry)):
            raise ValueError(f"a level is NAME=LABEL, e.g. zone=topology.kubernetes.io/zone, not {entry!r:.100}")
        if name == NODE_LEVEL or names.count(name) > 1:
            why = "it is the name of the last level, the nodes" if name == NODE_LEVEL else "it is given twice"
            raise ValueError(f"a level may not be called {name!r:.100}: {why}")
    keys = [_key(entry) for entry in given]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"two levels have the label {twice!r:.300}, so they would always have the same domains")
    return given


def _key(entry: str) -> str:
    return entry.partition("=")[2].strip()


Levels = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_split), Field(max_length=MAX_LEVELS - 1), AfterValidator(_levels)
]
"""NAME=LABEL for each level of a tree above the nodes, from the top; separated by commas in the environment."""


def _kinds(given: tuple[str, ...]) -> tuple[str, ...]:
    if odd := next((each for each in given if not _KIND.fullmatch(each)), None):
        raise ValueError(f"a kind is KIND.GROUP, e.g. Job.batch or MPIJob.kubeflow.org, not {odd!r:.100}")
    return given


OwnerKinds = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_split), Field(max_length=100), AfterValidator(_kinds)
]
"""KIND.GROUP of kinds of controllers; separated by commas in the environment."""


def _selector(given: str) -> str:
    if given and not _REQUIREMENTS.fullmatch(given):
        example = "pool=train or pool notin (train,serve)"
        raise ValueError(f"a selector of nodes is as for `kubectl get -l`, e.g. {example}, not {given!r:.100}")
    return given


class Settings(ServiceSettings):
    """Read from MUSTER_CLUSTER_STATE_* in the environment."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_CLUSTER_STATE_")

    listen: Address = listens_on(CLUSTER_STATE_PORT)
    kube: KubeSettings = Field(default_factory=KubeSettings)
    scheduler_names: Names = ("muster",)
    """Pods with one of these in spec.schedulerName are ours."""
    node_selector: Annotated[str, AfterValidator(_selector)] = Field(default="", max_length=2000)
    """Label selector of the nodes on which it has pods placed; empty: all. Other nodes do not exist for it."""
    topology_namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """Namespace of the ConfigMaps (label sakkara.topology) that define topology trees."""
    topology_levels: Levels = ()
    """Levels of the topology tree by node labels: zone=topology.kubernetes.io/zone,rack=example.com/rack. Without any,
    and without a ConfigMap, there is the level rack if a node has the label sakkara.topology.rack."""
    default_tree: str = ""
    """Topology tree of gangs that name none; empty: the first that exists of "default-tree", the tree of the oldest
    ConfigMap, and the tree by labels."""

    kueue_workloads: bool = False
    """Read Workloads of Kueue: gangs of pods that ask for it by the annotation muster.dev/kueue-workload."""

    @property
    def label_keys(self) -> dict[str, str]:
        """Label keys by level, from the top."""
        return {entry.partition("=")[0]: _key(entry) for entry in self.topology_levels}

    arbitrator_owner_kinds: OwnerKinds = ("QueueJob.arbitrator.incubator.k8s.io",)
    """Kinds of controllers, as KIND.GROUP, whose pods always wait for a SchedulingSpec with the same controller. Pods
    of other controllers join its gang once there is one; until then their own labels and annotations count."""
