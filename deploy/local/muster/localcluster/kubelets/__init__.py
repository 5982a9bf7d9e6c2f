"""Simulated kubelets: they register nodes and report the status of pods as a real kubelet does, without containers.

Start them with `python -m muster.localcluster.kubelets --kubeconfig FILE --nodes 20 --racks 4`, or in your own process
with `Kubelets(session, simulated_nodes(20, racks=4))`. All nodes share one process and one watch.

A bound pod passes the admission of a real kubelet (`admission`): a pod that does not fit fails with OutOfcpu and the
like, which reveals a scheduler that oversubscribes. An admitted pod runs for the seconds of the annotation
muster.dev/run-seconds, by default forever, and then succeeds, whatever its restartPolicy. A deleted pod stops at once.
When a Node object is deleted, its kubelet stops; the API server's controllers delete its pods.

Nodes may have GPUs as devices of dynamic resource allocation (`devices`): they are published as ResourceSlices, and a
pod waits until its ResourceClaims are allocated and reserved for it.
"""

from muster.localcluster.kubelets.pod_lifecycle import Kubelets
from muster.localcluster.kubelets.simulated_nodes import SimulatedNode, simulated_nodes

__all__ = ["Kubelets", "SimulatedNode", "simulated_nodes"]
