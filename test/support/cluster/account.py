"""Kubeconfigs and tokens of service accounts, so that programs under test have their shipped rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError
from support.cluster.install import CONFIG, apply_manifest, create_namespace
from support.cluster.json_api import send
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
    """Return a token of an account, which may be created some time after its namespace.

    Args:
        client: an administrator's.
        bound_to: reference of a Pod with whose end the token ends.
    """
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound_to} if bound_to else {},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"

    async def request() -> str:
        try:
            answer = await send(client, "POST", path, body)
        except NotFoundError:
            return ""
        return str(answer["status"]["token"])

    return await eventually(request, _ACCOUNT_TIMEOUT_S)


async def account_kubeconfig(
    client: Client, kubeconfig: str | Path, folder: Path, namespace: str, account: str
) -> Path:
    """Write a kubeconfig like the given one, with the rights of a service account; return its path.

    Args:
        client: an administrator's.
        folder: for the new file, which only its owner can read.
    """
    config = yaml.safe_load(Path(kubeconfig).read_text())
    config["users"][0]["user"] = {"token": await token_of(client, namespace, account)}
    own = folder / f"{namespace}-{account}.kubeconfig"
    own.touch(mode=0o600)
    own.write_text(yaml.safe_dump(config))
    return own


async def install_roles(client: Client) -> None:
    """Create the manager's namespace, account and all its roles, without the manager."""
    await create_namespace(client, SYSTEM)
    for name in ROLES:
        await apply_manifest(client, CONFIG / f"{name}.yaml")


async def manager_kubeconfig(client: Client, kubeconfig: str | Path, folder: Path) -> Path:
    """Install the manager's roles; return a kubeconfig with its shipped rights."""
    await install_roles(client)
    return await account_kubeconfig(client, kubeconfig, folder, SYSTEM, MANAGER)
