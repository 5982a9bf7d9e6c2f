"""Simulated devices of dynamic resource allocation: ResourceSlices of nodes, and preparation of ResourceClaims."""
