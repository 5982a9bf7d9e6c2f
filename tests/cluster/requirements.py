"""Programs and rights that the cluster needs of this machine, and the reason if something is missing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cluster.network import POLICY_RULE

CNI: Final = Path("/usr/lib/cni")
"""Network plugins, as Debian installs them."""
PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "helm",
    "cert-manager",
)
_DEBIAN: Final = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
"""Debian's packages by program."""
_TRIAL: Final = "muster-trial"


def tools() -> Path:
    """The directory of the programs that `make tools`, `make kubernetes` and `make cluster` build."""
    return Path(sys.prefix) / "tools"


def missing() -> str:
    """Why the cluster cannot run here; empty if it can."""
    return "; ".join(_missing())


def _missing() -> Iterator[str]:
    if sys.platform != "linux":
        yield "nodes are network namespaces, which only Linux has"
        return
    if os.geteuid() != 0:
        yield "network namespaces and containers need root"
        return
    packages = {package for program, package in _DEBIAN.items() if shutil.which(program) is None}
    if not (CNI / "ptp").exists():
        packages.add("containernetworking-plugins")
    if packages:
        yield f"programs are missing: apt-get install {' '.join(sorted(packages))}"
    if unbuilt := [name for name in PROGRAMS if not (tools() / name).exists()]:
        yield f"{', '.join(unbuilt)} are not built: `make cluster` builds them, which needs Go"
    if "overlay" not in Path("/proc/filesystems").read_text():
        yield "the kernel has no overlay file system"
    if not packages and (reason := _refused()):
        yield reason


def _refused() -> str:
    """The kernel's answer, if it refuses a namespace with a bridge and the rules of kube-proxy."""
    inside = ["ip", "netns", "exec", _TRIAL]
    share = "-m comment --comment x -m statistic --mode random --probability 0.5"
    rule = f"-t nat -A OUTPUT -p tcp {share} -j MARK --set-mark 1"
    attempts = (
        ["ip", "netns", "add", _TRIAL],
        [*inside, "ip", "link", "add", "bridge0", "type", "bridge"],
        [*inside, "ip", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1"],
        [*inside, "iptables", *rule.split()],
        [*inside, "iptables", *POLICY_RULE.split()],
        ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"],
    )
    try:
        for attempt in attempts:
            done = subprocess.run(attempt, capture_output=True, text=True, check=False, timeout=30)
            if done.returncode:
                return f"`{' '.join(attempt)}` failed: {done.stderr.strip()[-200:]}"
    finally:
        subprocess.run(["ip", "netns", "del", _TRIAL], capture_output=True, check=False, timeout=30)
    return ""
