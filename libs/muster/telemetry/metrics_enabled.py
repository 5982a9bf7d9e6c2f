"""Whether this process tells metrics: known without loading what counts, which commands of people need not wait for."""


class _State:
    on = False


def enable_metrics() -> None:
    """From now on, what is made counts: servers and channels that are there already do not."""
    _State.on = True


def metrics_enabled() -> bool:
    """Somebody may ask for this process's metrics."""
    return _State.on
