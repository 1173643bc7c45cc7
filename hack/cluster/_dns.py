"""DNS for pods and services: CoreDNS at the address that kubelets configure in pods.

Unlike in other clusters, it is not a pod but a process of the control plane: it needs no image, no
node and no service address.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from ._config import DNS_ADDRESS, DNS_USER
from ._config import DNS_DOMAIN as DOMAIN

PORT = 53

# The objects that its kubernetes plugin reads.
ACCESS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "clusterroles",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": DNS_USER},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["namespaces", "services"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
    ),
    (
        "clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": DNS_USER},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": DNS_USER,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": DNS_USER}
            ],
        },
    ),
)


def argv(binary: Path, folder: Path) -> list[str]:
    """Return its command line."""
    return [str(binary), f"-conf={folder / 'Corefile'}"]


def corefile(folder: Path, context: str) -> str:
    """Return its configuration: the cluster's names, and an immediate NXDOMAIN for all others.

    Nothing is cached: tests look names up before and after they exist.

    Args:
        folder: folder with its kubeconfig.
        context: context of the kubeconfig to use.
    """
    return f"""\
{DOMAIN}:{PORT} in-addr.arpa:{PORT} {{
    bind {DNS_ADDRESS}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {folder / "coredns.kubeconfig"} {context}
        ttl 1
    }}
}}
.:{PORT} {{
    bind {DNS_ADDRESS}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def serves(pid: int) -> bool:
    """Return True if the process, in a network namespace of its own, has bound its port."""
    address = int.from_bytes(socket.inet_aton(DNS_ADDRESS), "little")
    try:
        sockets = Path(f"/proc/{pid}/net/udp").read_text()
    except OSError:
        return False
    return f" {address:08X}:{PORT:04X} " in sockets
