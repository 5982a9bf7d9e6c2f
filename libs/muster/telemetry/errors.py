"""What is wrong with the settings of telemetry, told before a service starts."""

from muster.config.settings import CannotStart


class BadTracing(CannotStart):
    """OTEL_* variables do not make sense; the message has a line per mistake, with the value and the rule."""
