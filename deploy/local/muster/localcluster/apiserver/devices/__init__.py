"""Dynamic resource allocation: the kinds of resource.k8s.io/v1 and the controller of ResourceClaims."""
