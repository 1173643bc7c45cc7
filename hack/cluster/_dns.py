"""Names for pods and services: CoreDNS on the address that kubelets tell their pods to ask.

It is not a pod as in other clusters: as one more process of the control plane it needs no image, no
node and no service address.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from ._config import DNS_ADDRESS, DNS_USER
from ._config import DNS_DOMAIN as DOMAIN

PORT = 53

# Its kubernetes plugin reads these, and nothing else.
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
    """Its command line."""
    return [str(binary), f"-conf={folder / 'Corefile'}"]


def corefile(folder: Path, context: str) -> str:
    """Configuration: the cluster's names, and an immediate "no such name" for all others.

    Nothing is cached: a test asks for a name before it is there, and again when it is.

    Args:
        folder: has its kubeconfig.
        context: the one to use of that.
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
