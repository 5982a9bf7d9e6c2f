"""A Kubernetes cluster with Muster on one machine, for trying out and for tests. Production code never imports it."""
