"""Starts a program that cannot outlive the one that asked for it: `python tether.py PARENT_PID PROGRAM [ARGUMENT...]`.

Linux signals a process when its parent is gone if the process asked for it (prctl PR_SET_PDEATHSIG, kept by execve).
Asking happens here, in the child, between fork and exec, so that the parent need not run Python code in a forked copy
of itself. Elsewhere the program is started without it. Run with `python -I -S`: it imports next to nothing and takes
about 15 ms.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent_pid: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:  # it went away before we asked
        sys.exit(1)


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
