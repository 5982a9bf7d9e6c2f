"""One write of a Write call, and the ways in which it ends."""

from muster.binding.pipeline import Job
from muster.binding.verdicts import DONE, Verdict
from muster.binding.write_call import WriteCall
from muster.kube.session import KubeSession


class WriteJob(Job):
    """A job that the call counts, once; what it is about is its own business."""

    __slots__ = ("_call", "_session")

    def __init__(self, call: WriteCall, session: KubeSession) -> None:
        super().__init__()
        self._call, self._session = call, session

    def _written(self) -> Verdict:
        self._call.written()
        return DONE

    def _gone(self) -> Verdict:
        self._call.gone()
        return DONE

    def _refused(self, why: str) -> Verdict:
        self.give_up(why)
        return DONE
