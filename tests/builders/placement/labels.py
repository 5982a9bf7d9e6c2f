"""Clusters of tests whose pods have labels."""

from builders.gangs.labels import with_labels
from muster.gangs.facts import Batch
from muster.placement.state.cluster import Cluster


class LabelledCluster(Cluster):
    """A cluster whose batches need not have label sets and selectors."""

    def apply(self, batch: Batch) -> None:
        super().apply(with_labels(batch, self.pod_classes))
