"""Manifests with which API servers call a manager's webhooks, found without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from jobsetpy.app.user_programs import Setup
from jobsetpy.client import ByteStream, Client, HttpRequest, HttpResponse
from jobsetpy.manager import Manager, Runnable
from jobsetpy.runtime._webhooks import ServedWebhooks, Webhook
from jobsetpy.serving.http import parse_address

_SYSTEM = "kube-system"


class _NoTransport:
    """Refuses to send anything."""

    host = ""

    async def request(self, request: HttpRequest) -> HttpResponse:
        raise ValueError(self._refusal(request))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[ByteStream]:
        raise ValueError(self._refusal(request))

    async def refresh_credentials(self) -> None:
        """There are none."""

    async def aclose(self) -> None:
        """Nothing to close."""

    @staticmethod
    def _refusal(request: HttpRequest) -> str:
        return f"setup asks the API server ({request.method} {request.path}): leave that to run"


def served_by(setup: Setup) -> ServedWebhooks:
    """The webhooks that a setup function adds to its manager.

    Raises:
        ValueError: there are none, or it asks the API server.
    """
    for runnable in asyncio.run(_added(setup)):
        if isinstance(runnable, ServedWebhooks):
            return runnable
    msg = f"{setup!r} serves no webhooks: it has to call runtime.serve_webhooks(manager, ...)"
    raise ValueError(msg)


async def _added(setup: Setup) -> Sequence[Runnable]:
    manager = Manager(Client(_NoTransport()))
    asked = setup(manager)
    if asked is not None:
        await asked
    return manager.runnables


def webhook_manifests(
    served: ServedWebhooks, *, namespace: str, url: str = ""
) -> list[dict[str, Any]]:
    """Return Service, Secret and configurations, as JSON objects.

    The Secret and the CA bundles are empty: the manager fills them in. Applying the manifests again
    keeps its values.

    Args:
        served: the webhooks.
        namespace: namespace of the manager.
        url: ``https://host:port`` to call instead of a Service, of a manager outside the cluster.
    """
    settings, labels = served.settings, {"app.kubernetes.io/name": served.app}

    def client(path: str) -> dict[str, Any]:
        if url:
            return {"url": url.rstrip("/") + path}
        return {"service": {"name": settings.service_name, "namespace": namespace, "path": path}}

    out: list[dict[str, Any]] = []

    def add(api_version: str, kind: str, name: str, home: dict[str, str], **fields: Any) -> None:
        metadata = {"name": name, **home, "labels": labels}
        out.append({"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields})

    home = {"namespace": namespace}
    add("v1", "Secret", settings.secret_name, home)
    if not url:
        port = (parse_address(settings.bind_address) or ("", 0))[1]
        spec = {"selector": labels, "ports": [{"port": 443, "targetPort": port}]}
        add("v1", "Service", settings.service_name, home, spec=spec)
    for kind, name, verb in (
        ("MutatingWebhookConfiguration", settings.mutating_configuration, "mutate"),
        ("ValidatingWebhookConfiguration", settings.validating_configuration, "validate"),
    ):
        called = [
            _webhook(one, verb, client(one.path(verb)), namespace)
            for one in served.webhooks
            if (one.default if verb == "mutate" else one.validate)
        ]
        if name:
            add("admissionregistration.k8s.io/v1", kind, name, {}, webhooks=called)
    return out


def _webhook(
    one: Webhook[Any], verb: str, client: Mapping[str, Any], namespace: str
) -> dict[str, Any]:
    at = one.resource
    operations = [each for each in one.operations if verb == "validate" or each != "DELETE"]
    out: dict[str, Any] = {
        "name": f"{verb}.{at.plural}.{at.group or 'core.k8s.io'}",
        "clientConfig": client,
        "rules": [
            {
                "apiGroups": [at.group],
                "apiVersions": [at.version],
                "resources": [at.plural],
                "operations": operations or ["CREATE", "UPDATE"],
                "scope": "Namespaced" if at.namespaced else "Cluster",
            }
        ],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": one.failure_policy,
        "timeoutSeconds": one.timeout_s,
    }
    selector = one.namespace_selector
    of_kubernetes = "." not in at.group or at.group.endswith(".k8s.io")
    if selector is None and at.namespaced and of_kubernetes:
        # Or the manager's own pods, and the system's, could not start while no webhook answers.
        name = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
        selector = {"matchExpressions": [{**name, "values": sorted({_SYSTEM, namespace})}]}
    if selector is not None:
        out["namespaceSelector"] = selector
    if one.object_selector is not None:
        out["objectSelector"] = one.object_selector
    return out
