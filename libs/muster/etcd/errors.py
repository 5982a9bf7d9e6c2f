"""Errors of requests to etcd."""

from muster.config.settings import CannotStart


class Fenced(RuntimeError):
    """The leader key has another create revision, or does not exist. Nothing was written."""


class TooLarge(ValueError):
    """etcd rejects a transaction of this size. Nothing was written; split it."""


class EtcdUnavailable(RuntimeError):
    """etcd is unreachable, or did not answer in time.

    `outcome_known`: the request had no effect. Otherwise it may have taken effect, or may still do so.
    """

    def __init__(self, message: str, *, outcome_known: bool) -> None:
        super().__init__(message)
        self.outcome_known = outcome_known


class BadEndpoints(CannotStart):
    """The endpoints of etcd are not of the form "HOST:PORT[,HOST:PORT...]"."""
