"""Runs a program that is killed when its parent exits: `python parent_watchdog.py PARENT_PID PROGRAM [ARGUMENT...]`.

Linux signals a process on its parent's exit if the process has asked for it (prctl PR_SET_PDEATHSIG, kept by execve).
This script asks in the child, between fork and exec, so that the parent runs no Python code in a forked copy of itself.
On other systems the program outlives its parent. Run with `python -I -S`: it imports almost nothing and takes 15 ms.
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
    if os.getppid() != parent_pid:  # the parent exited before prctl
        sys.exit(1)


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
