"""Simulated kubelets: nodes that exist only in the API, and run what is bound to them as a real kubelet reports it.

Start them with `python -m muster.localcluster.kubelets --kubeconfig FILE --nodes 20 --racks 4`, or in a process of your
own with `Kubelets(session, node_shapes(20, racks=4))`. All nodes live in one process and share one watch.

A pod is judged when it arrives, by a kubelet's own rules (`admission`); one that does not fit fails with OutOfcpu and
the like, so a scheduler that oversubscribes shows. One that fits runs until the annotation muster.dev/run-seconds is
over and ends with the status of muster.dev/exit-code (restartPolicy counts); without the annotation it runs for ever.
Deleted pods stop at once. A node whose Node object is deleted is no more; its pods are left to the API server's
controllers.
"""

from muster.localcluster.kubelets.fleet import Kubelets
from muster.localcluster.kubelets.shapes import NodeShape, node_shapes

__all__ = ["Kubelets", "NodeShape", "node_shapes"]
