"""Rights, token and environment of agents outside of any pod."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from jobsetpy.client import Client
from support.cluster.account import token_of
from support.cluster.json_api import send

ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "agent"},
    "rules": [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    ],
}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def binding(namespace: str, role: str, account: str) -> dict[str, Any]:
    """Return the binding of a Role to an account, with the Role's name."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
    }


async def agent_environ(
    client: Client, kubeconfig: str | Path, folder: Path, namespace: str, jobset: str
) -> dict[str, str]:
    """Return the environment of agents without ``POD_NAME``; create the Role of their account.

    Args:
        client: an administrator's.
        kubeconfig: for the API server's address and authority.
        folder: for the account's files.
        namespace: of the account ``default``, which may be created later.
        jobset: name of the JobSet.
    """
    rbac = f"{RBAC}/namespaces/{namespace}"
    await send(client, "POST", f"{rbac}/roles", ROLE)
    await send(client, "POST", f"{rbac}/rolebindings", binding(namespace, "agent", "default"))
    config = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]
    (folder / "token").write_text(await token_of(client, namespace, "default"))
    (folder / "ca.crt").write_bytes(base64.b64decode(config["certificate-authority-data"]))
    host, _, port = config["server"].removeprefix("https://").rpartition(":")
    return {
        **os.environ,
        "NAMESPACE": namespace,
        "JOBSET_NAME": jobset,
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "SERVICE_ACCOUNT_DIR": str(folder),
        "BARRIER_BIND_ADDRESS": "127.0.0.1",
        "BARRIER_PORT": "0",
    }
