"""A whole Kubernetes cluster on this machine, with kubelets and containers, and the tests of the chart on it."""
