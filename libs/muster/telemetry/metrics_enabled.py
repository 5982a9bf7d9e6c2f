"""Whether this process exposes metrics; a module of its own so that CLI commands need not import prometheus_client."""


class _State:
    on = False


def enable_metrics() -> None:
    """Have servers and channels that are created from now on record metrics."""
    _State.on = True


def metrics_enabled() -> bool:
    """Whether this process exposes metrics."""
    return _State.on
