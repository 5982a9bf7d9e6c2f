"""Names the member that has no place: placement knows classes, users know pods and labels."""

from collections.abc import Mapping

from msgspec.structs import replace

from muster.coordinator.core.gang import Gang
from muster.gangs.facts import NodeRequirement, NodeSelectorTerm, PodClass
from muster.gangs.solve import Explanation

_LONGEST_DEMAND = 128


def name_culprit(explanation: Explanation, gangs: Mapping[str, Gang], classes: Mapping[str, PodClass]) -> Explanation:
    """The explanation with a pod of the class that did not fit, where it tells more than the gang's name does: when its
    members differ, or ask for certain nodes.
    """
    gang, pod_class = gangs.get(explanation.gang), classes.get(explanation.class_id)
    if gang is None or pod_class is None:
        return explanation
    pods = [pod for pod in gang.waiting.values() if pod.class_id == pod_class.id]
    wishes = _wishes(pod_class)
    if not pods or (not wishes and len(pods) == len(gang.waiting)):
        return explanation
    first = min(pods, key=lambda pod: (len(pod.name), pod.name))
    others = f" and {len(pods) - 1} like it" if len(pods) > 1 else ""
    asks = f" asking for nodes with {wishes}" if wishes else ""
    return replace(explanation, summary=f"{explanation.summary} (pod {first.name}{others}{asks})")


def _wishes(pod_class: PodClass) -> str:
    parts = [f"{key}={value}" for key, value in pod_class.node_selector]
    if pod_class.required_node_affinity:
        parts.append(" or ".join(_term(term) for term in pod_class.required_node_affinity))
    text = ", ".join(parts)
    return text if len(text) <= _LONGEST_DEMAND else text[: _LONGEST_DEMAND - 1] + "…"


def _term(term: NodeSelectorTerm) -> str:
    return " and ".join(_requirement(requirement) for requirement in (*term.labels, *term.fields))


def _requirement(requirement: NodeRequirement) -> str:
    operator = requirement.operator.name.lower().replace("_", " ")
    return f"{requirement.key} {operator} {' '.join(requirement.values)}".rstrip()
