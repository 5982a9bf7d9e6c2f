"""The machine's side of the network: a bridge, and a namespace with an address and a route for each node.

The addresses are private, and no traffic leaves the machine.
"""

import subprocess
from dataclasses import dataclass
from typing import Final

HOST: Final = "10.209.0.1"
"""The address of the control plane."""
API_PORT: Final = 6443
POD_NETWORK: Final = "10.210.0.0/16"
DNS_IP: Final = "10.96.0.10"
POLICY_RULE: Final = "-t mangle -A FORWARD -m conntrack --ctstate NEW -j NFQUEUE --queue-num 100 --queue-bypass"
"""Asks kube-network-policies about each new connection of a pod. It has a rule of its own for nftables, but kernels may
be built without what that needs (NFT_QUEUE).
"""
_BRIDGE: Final = "muster0"


@dataclass(frozen=True)
class NodeAddress:
    """Names and addresses of the node of a number from 1."""

    number: int

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def namespace(self) -> str:
        """The name of its network namespace on this machine."""
        return f"muster-{self.name}"

    @property
    def ip(self) -> str:
        return f"10.209.0.{10 + self.number}"

    @property
    def pod_network(self) -> str:
        return f"10.210.{self.number}.0/24"


def create(nodes: list[NodeAddress]) -> None:
    """Create the bridge and the namespaces; what an earlier run left is deleted. Raises CalledProcessError."""
    delete(nodes)
    _ip(f"link add {_BRIDGE} type bridge")
    _ip(f"addr add {HOST}/24 dev {_BRIDGE}")
    _ip(f"link set {_BRIDGE} up")
    for node in nodes:
        cable = f"muster{node.number}"
        _ip(f"netns add {node.namespace}")
        _ip(f"link add {cable} type veth peer name eth0 netns {node.namespace}")
        _ip(f"link set {cable} master {_BRIDGE} up")
        inside = f"-n {node.namespace}"
        _ip(f"{inside} link set lo up")
        _ip(f"{inside} addr add {node.ip}/24 dev eth0")
        _ip(f"{inside} link set eth0 up")
        _ip(f"{inside} route add default via {HOST}")
        for other in nodes:
            if other is not node:
                _ip(f"{inside} route add {other.pod_network} via {other.ip}")
        _ip(f"netns exec {node.namespace} iptables {POLICY_RULE}")
        # The control plane calls webhooks and answers pods.
        _ip(f"route add {node.pod_network} via {node.ip} dev {_BRIDGE}")


def delete(nodes: list[NodeAddress]) -> None:
    """Delete the bridge, its routes and the namespaces, as far as they exist."""
    for node in nodes:
        _ip(f"link del muster{node.number}", check=False)
        _ip(f"netns del {node.namespace}", check=False)
    _ip(f"link del {_BRIDGE}", check=False)


def _ip(arguments: str, *, check: bool = True) -> None:
    subprocess.run(["ip", *arguments.split()], check=check, capture_output=not check, timeout=30)
