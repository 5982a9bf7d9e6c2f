"""PodGroups of kube-batch, coscheduling and Koordinator: counts and phases, and groups that are restarted whole."""
