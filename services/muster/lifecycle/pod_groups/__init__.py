"""Status and restarts of PodGroups of kube-batch, coscheduling and Koordinator."""
