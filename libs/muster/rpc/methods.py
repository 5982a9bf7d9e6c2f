"""What the name of a method says about its calls."""

_PLUMBING = ("/grpc.health.", "/grpc.reflection.")


def is_plumbing(method: str) -> bool:
    """Health and reflection: neither traced nor logged."""
    return method.startswith(_PLUMBING)


def is_subscription(method: str) -> bool:
    """Streams that go on until one side leaves: our contracts, like gRPC's own health, call them Watch."""
    return method.endswith("/Watch")
