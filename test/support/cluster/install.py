"""Installation of jobsetpy from its own manifests, without kubectl or kustomize.

It applies the files in ``config/`` by server-side apply, for the demo, the tests and the benchmarks;
users run ``kubectl apply -k config/default``.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hack.generate.kustomize import LOADER, render
from jobsetpy.api.core import Namespace
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.unstructured import unstructured
from jobsetpy.client import Client, HttpRequest, connect
from jobsetpy.errors import AlreadyExistsError, NotFoundError
from jobsetpy.testing.apiserver._definitions import DEFINITIONS
from support import patience
from support.cluster.json_api import exists, send
from support.patience import eventually

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "config"
CRD = CONFIG / "crd/jobset.x-k8s.io_jobsets.yaml"
CRD_NAME = "jobsets.jobset.x-k8s.io"
Definition = unstructured(DEFINITIONS.info)
_applied: set[tuple[str, int]] = set()
"""UID and generation of the CRDs that this process has applied."""
SYSTEM = "jobset-system"
MANAGER_IMAGE = "localhost/jobsetpy-manager:dev"
AGENT_IMAGE = "localhost/jobsetpy-agent:dev"
GROUP_FLAGS = ["--group-scheduling-image=localhost/shell:1"]
"""Pods of startup groups without a token wait by a shell."""


@contextlib.asynccontextmanager
async def connected(kubeconfig: str | Path, **settings: Any) -> AsyncIterator[Client]:
    """Yield a client of a cluster, which is closed with the block."""
    client = await connect(kubeconfig=str(kubeconfig), **settings)
    async with contextlib.aclosing(client):
        yield client


async def apply_manifest(client: Client, path: Path) -> None:
    """Apply every document of a YAML file by server-side apply."""
    for document in yaml.load_all(path.read_text(), LOADER):
        if document:
            await apply_object(client, document)


CLUSTER_SCOPED = {
    *("CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding", "FlowSchema"),
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "PriorityLevelConfiguration"),
}


def path_of(document: dict[str, Any], namespace: str = "default") -> str:
    """Return the path of an object, in ``namespace`` if it names none."""
    kind, group_version = document["kind"], document["apiVersion"]
    plural = re.sub("y$", "ie", kind.lower()) + "s"
    prefix = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    namespace = document["metadata"].get("namespace", namespace)
    middle = "" if kind in CLUSTER_SCOPED else f"/namespaces/{namespace}"
    return f"{prefix}{middle}/{plural}/{document['metadata']['name']}"


async def apply_object(client: Client, document: dict[str, Any]) -> None:
    """Apply an object by server-side apply."""
    for subject in document.get("subjects", ()):
        if subject["kind"] == "ServiceAccount":
            subject.setdefault("namespace", document["metadata"].get("namespace", "default"))
    query = (("fieldManager", "jobsetpy-hack"), ("force", "true"))
    how = {"query": query, "content_type": "application/apply-patch+yaml"}
    await send(client, "PATCH", path_of(document), document, **how)


async def install_crd(client: Client) -> None:
    """Apply the CRD and wait until JobSets can be listed.

    It has 300 KB, which take a second of CPU, and many tests share a cluster: it is applied again
    only if it is not what this process applied last.
    """
    if await _crd_state(client) not in _applied:
        await apply_manifest(client, CRD)
        await jobsets_served(client)
        _applied.add(await _crd_state(client))


async def _crd_state(client: Client) -> tuple[str, int]:
    """Return the CRD's UID and generation, which changes with its spec; ("", 0) if there is none."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    try:
        answer = await client.raw(HttpRequest(method="GET", path=path, accept=accept))
    except NotFoundError:
        return "", 0
    metadata = msgspec.json.decode(answer.body)["metadata"]
    return metadata["uid"], metadata["generation"]


async def jobsets_served(client: Client) -> None:
    """Wait until JobSets can be listed."""
    for _ in range(round(patience.scaled(100))):
        if await exists(client, JobSet.RESOURCE.path()):
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the CRD was applied but its resource does not appear")


async def create_namespace(client: Client, name: str) -> None:
    """Create a namespace if it does not exist."""
    with contextlib.suppress(AlreadyExistsError):
        await client.create(
            Namespace, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )


async def create_usable_namespace(client: Client, name: str) -> None:
    """Create a namespace and wait for the account that pods in it need."""
    await create_namespace(client, name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    await eventually(lambda: exists(client, account), 60, poll_s=0.1)


async def install_agent_account(client: Client, namespace: str) -> None:
    """Create the account of agents, with its rights, in a namespace."""
    for document in render(CONFIG / "agent/account"):
        document["metadata"]["namespace"] = namespace
        await apply_object(client, document)


async def install_manager(
    client: Client,
    image: str = MANAGER_IMAGE,
    *,
    folder: str = "default",
    arguments: Iterable[str] = (),
) -> None:
    """Install a folder of ``config/`` with ``image``, without waiting for the manager.

    Args:
        folder: ``default``, or ``without-webhooks``.
        arguments: further flags of the manager.
    """
    definition = "CustomResourceDefinition"
    objects = [each for each in rendered(folder, image=image) if each["kind"] != definition]
    for item in objects:
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["args"] += arguments
    await install_crd(client)
    await apply_all(client, objects)


async def apply_all(client: Client, documents: Iterable[dict[str, Any]]) -> None:
    """Apply all of them by server-side apply, each after those that it needs."""
    for document in sorted(documents, key=_rank):
        await apply_object(client, document)


async def delete_all(client: Client, documents: Iterable[dict[str, Any]]) -> None:
    """Delete all of them that exist, as ``kubectl delete -k`` does, without waiting."""
    for document in sorted(documents, key=_rank, reverse=True):
        with contextlib.suppress(NotFoundError):
            await send(client, "DELETE", path_of(document))


def _rank(document: dict[str, Any]) -> int:
    """Sort namespaces before their objects, and webhooks after their servers."""
    kind = document["kind"]
    return -1 if kind == "Namespace" else kind.endswith("WebhookConfiguration")


def rendered(
    folder: str = "default", *components: str, image: str = MANAGER_IMAGE, agent: str = AGENT_IMAGE
) -> list[dict[str, Any]]:
    """Return the objects of a folder of ``config/``, with images that were built here.

    Args:
        folder: in ``config/``.
        components: in ``config/components/``.
        image: the manager's.
        agent: the agent's.
    """
    images = {"jobsetpy-manager": image, "jobsetpy-agent": agent}
    paths = [CONFIG / "components" / name for name in components]
    objects = render(CONFIG / folder, *paths, images=images)
    for item in objects:
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["args"] += GROUP_FLAGS
    return objects
