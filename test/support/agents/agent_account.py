"""What agents outside of any pod need: the rights of their account, its token and an environment."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import yaml

from jobsetpy.client import Client, HttpRequest
from support.cluster.account import token_of

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
    """Gives the rights of a Role to an account; named as the Role."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
    }


async def post(client: Client, path: str, body: dict[str, Any]) -> Any:
    """Create something that has no model here."""
    answer = await client.raw(HttpRequest(method="POST", path=path, body=json.dumps(body).encode()))
    return json.loads(answer.body)


async def agent_environ(
    client: Client, kubeconfig: str | Path, folder: Path, namespace: str, jobset: str
) -> dict[str, str]:
    """The environment of agents, but for ``POD_NAME``; makes the Role that their account needs.

    Args:
        client: an administrator's.
        kubeconfig: where the API server is, and whom it is signed by.
        folder: for the files of the account.
        namespace: of the account ``default``, which may come into being later.
        jobset: its name.
    """
    rbac = f"{RBAC}/namespaces/{namespace}"
    await post(client, f"{rbac}/roles", ROLE)
    await post(client, f"{rbac}/rolebindings", binding(namespace, "agent", "default"))
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
