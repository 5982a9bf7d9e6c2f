"""What goes wrong with etcd."""

from muster.config.settings import CannotStart


class Fenced(RuntimeError):
    """The leader key is not the one this leadership is about: somebody else leads, or nobody. Nothing was written."""


class TooLarge(ValueError):
    """etcd refuses a transaction of this size. Nothing was written; write less at once."""


class EtcdUnavailable(RuntimeError):
    """etcd could not be asked, or did not answer in time.

    `outcome_known`: the request had no effect. Otherwise it may have had its effect, or may have it yet.
    """

    def __init__(self, message: str, *, outcome_known: bool) -> None:
        super().__init__(message)
        self.outcome_known = outcome_known


class BadEndpoints(CannotStart):
    """The endpoints of etcd are not "HOST:PORT[,HOST:PORT...]"."""
