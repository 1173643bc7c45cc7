"""Kubeconfigs and tokens of service accounts: what is tested has the rights it ships with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import NotFoundError
from support.cluster.install import CONFIG, apply_manifest, create_namespace
from support.patience import eventually

SYSTEM = "jobset-system"
MANAGER = "jobset-controller-manager"
ROLES = (
    "rbac/service_account",
    "rbac/manager_role",
    "rbac/successor_role",
    "rbac/leader_election_role",
    "rbac/metrics_roles",
    "webhook/role",
    "webhook/secret",
    "group-scheduling/manager_role",
)
_ACCOUNT_TIMEOUT_S = 60.0


async def token_of(
    client: Client, namespace: str, account: str, *, bound_to: dict[str, Any] | None = None
) -> str:
    """A token of an account, which may come into being only after its namespace.

    Args:
        client: an administrator's.
        bound_to: reference of a Pod whose end is the token's.
    """
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound_to} if bound_to else {},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = HttpRequest(method="POST", path=path, body=json.dumps(body).encode())

    async def ask() -> str:
        try:
            answer = await client.raw(request)
        except NotFoundError:
            return ""
        return str(json.loads(answer.body)["status"]["token"])

    return await eventually(ask, _ACCOUNT_TIMEOUT_S)


async def account_kubeconfig(
    client: Client, kubeconfig: str | Path, folder: Path, namespace: str, account: str
) -> Path:
    """A kubeconfig like the given one, but with the rights of a service account.

    Args:
        client: an administrator's.
        folder: where the new file goes; only its owner can read it.
    """
    config = yaml.safe_load(Path(kubeconfig).read_text())
    config["users"][0]["user"] = {"token": await token_of(client, namespace, account)}
    own = folder / f"{namespace}-{account}.kubeconfig"
    own.touch(mode=0o600)
    own.write_text(yaml.safe_dump(config))
    return own


async def install_roles(client: Client) -> None:
    """The manager's namespace, account and all its roles, without the manager."""
    await create_namespace(client, SYSTEM)
    for name in ROLES:
        await apply_manifest(client, CONFIG / f"{name}.yaml")


async def manager_kubeconfig(client: Client, kubeconfig: str | Path, folder: Path) -> Path:
    """A kubeconfig with the rights that the manager ships with; installs its roles."""
    await install_roles(client)
    return await account_kubeconfig(client, kubeconfig, folder, SYSTEM, MANAGER)
