"""Whether this process tells metrics: known without loading what counts, which commands of people need not wait for."""


class _Measuring:
    on = False


def measure() -> None:
    """From now on, what is made counts: servers and channels that are there already do not."""
    _Measuring.on = True


def measuring() -> bool:
    """Somebody may ask for this process's metrics."""
    return _Measuring.on
