"""Answers solve requests for a virtual cluster with the solver of scenarios."""

from builders.core.objects import Cluster
from builders.core.solver import first_fit
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved
from muster.forecast.cluster_stream import ClusterStream


class FirstFit:
    """Places gangs of pods that request cpu, as the solver of scenarios does, in the cluster that a stream has now."""

    def __init__(self, stream: ClusterStream) -> None:
        self._stream = stream

    async def solve(self, effect: Solve) -> Solved:
        known = self._stream.cluster
        cluster = Cluster(nodes=known.nodes, trees=known.trees, classes=known.pod_classes, revision=known.revision)
        for pod in known.pods.values():
            cluster.put_pod(pod)
        return Solved(effect.solve_id, first_fit(cluster, effect))
