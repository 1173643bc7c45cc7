"""Put jobsetpy into a cluster from its own manifests, without kubectl or kustomize.

Server-side apply of the files in ``config/``. The demo, the tests and the benchmarks use it; people
use ``kubectl apply -k config/default``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hack.generate.kustomize import render
from jobsetpy.api.core import Namespace
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest
from jobsetpy.errors import AlreadyExistsError, NotFoundError
from support import patience

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "config"
SYSTEM = "jobset-system"
MANAGER_IMAGE = "localhost/jobsetpy-manager:dev"
AGENT_IMAGE = "localhost/jobsetpy-agent:dev"
GROUP_FLAGS = ["--group-scheduling-image=localhost/shell:1"]
"""Pods of groups that have no token wait by a shell."""


async def apply_manifest(client: Client, path: Path) -> None:
    """Server-side apply every document of a YAML file, by its own kind."""
    for document in yaml.safe_load_all(path.read_text()):
        if document:
            await apply_object(client, document)


PLURALS = {
    "CustomResourceDefinition": ("customresourcedefinitions", False),
    "Namespace": ("namespaces", False),
    "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False),
    "Role": ("roles", True),
    "RoleBinding": ("rolebindings", True),
    "Lease": ("leases", True),
    "ServiceAccount": ("serviceaccounts", True),
    "Deployment": ("deployments", True),
    "Service": ("services", True),
    "ConfigMap": ("configmaps", True),
    "Secret": ("secrets", True),
    "MutatingWebhookConfiguration": ("mutatingwebhookconfigurations", False),
    "ValidatingWebhookConfiguration": ("validatingwebhookconfigurations", False),
    "ValidatingAdmissionPolicy": ("validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": ("validatingadmissionpolicybindings", False),
    "MutatingAdmissionPolicy": ("mutatingadmissionpolicies", False),
    "MutatingAdmissionPolicyBinding": ("mutatingadmissionpolicybindings", False),
    "PriorityLevelConfiguration": ("prioritylevelconfigurations", False),
    "FlowSchema": ("flowschemas", False),
    "PodDisruptionBudget": ("poddisruptionbudgets", True),
    "JobSet": ("jobsets", True),
}


def path_of(document: dict[str, Any]) -> str:
    """Where an object is, given as JSON data; in ``default`` if it does not say a namespace."""
    plural, namespaced = PLURALS[document["kind"]]
    group_version = document["apiVersion"]
    prefix = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    namespace = document["metadata"].get("namespace", "default")
    middle = f"/namespaces/{namespace}" if namespaced else ""
    return f"{prefix}{middle}/{plural}/{document['metadata']['name']}"


async def apply_object(client: Client, document: dict[str, Any]) -> None:
    """Server-side apply one object given as JSON data."""
    for subject in document.get("subjects", ()):
        if subject["kind"] == "ServiceAccount":
            subject.setdefault("namespace", document["metadata"].get("namespace", "default"))
    await client.raw(
        HttpRequest(
            method="PATCH",
            path=path_of(document),
            query=(("fieldManager", "jobsetpy-hack"), ("force", "true")),
            content_type="application/apply-patch+yaml",
            body=msgspec.json.encode(document),
        )
    )


async def install_crd(client: Client) -> None:
    """Apply the CRD and wait until JobSets can be listed."""
    await apply_manifest(client, ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml")
    await jobsets_served(client)


async def jobsets_served(client: Client) -> None:
    """Wait until JobSets can be listed."""
    for _ in range(round(patience.scaled(100))):
        with contextlib.suppress(NotFoundError):
            await client.raw(HttpRequest(method="GET", path=JobSet.RESOURCE.path()))
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the CRD was applied but its resource does not appear")


async def create_namespace(client: Client, name: str) -> None:
    """Make a namespace if it is not there."""
    with contextlib.suppress(AlreadyExistsError):
        await client.create(
            Namespace, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )


async def install_manager(
    client: Client,
    image: str = MANAGER_IMAGE,
    *,
    folder: str = "default",
    arguments: Iterable[str] = (),
) -> None:
    """What a folder of ``config/`` makes, with ``image``; returns without waiting for the manager.

    Args:
        folder: ``default``, or ``without-webhooks``.
        arguments: further flags of the manager.
    """
    objects = rendered(folder, image=image)
    for item in objects:
        if item["kind"] == "Deployment":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            container["args"] += arguments
    await apply_all(client, objects)
    await jobsets_served(client)


async def apply_all(client: Client, documents: Iterable[dict[str, Any]]) -> None:
    """Server-side apply all of them, each after those it needs."""
    for document in sorted(documents, key=_rank):
        await apply_object(client, document)


async def delete_all(client: Client, documents: Iterable[dict[str, Any]]) -> None:
    """Delete all of them that are there, as ``kubectl delete -k`` does; does not wait."""
    for document in sorted(documents, key=_rank, reverse=True):
        with contextlib.suppress(NotFoundError):
            await client.raw(HttpRequest(method="DELETE", path=path_of(document)))


def _rank(document: dict[str, Any]) -> int:
    """Namespaces come before what is in them, webhooks after those who serve them."""
    kind = document["kind"]
    return -1 if kind == "Namespace" else kind.endswith("WebhookConfiguration")


def rendered(
    folder: str = "default", *components: str, image: str = MANAGER_IMAGE, agent: str = AGENT_IMAGE
) -> list[dict[str, Any]]:
    """The objects of a folder of ``config/``, with images that were built here.

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
