"""Devices of dynamic resource allocation (resource.k8s.io/v1): facts, pools and allocation; no I/O."""
