"""The shipped webhook configurations, for a manager on this machine without a Service."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import yaml

from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError
from jobsetpy.serving.webhook_kinds import MutatingConfiguration, ValidatingConfiguration
from support.cluster.install import CONFIG, apply_object

_NAMES: Final[tuple[tuple[type[Any], str], ...]] = (
    (MutatingConfiguration, "jobset-mutating-webhook-configuration"),
    (ValidatingConfiguration, "jobset-validating-webhook-configuration"),
)


async def apply_webhooks(client: Client, port: int, bundle: str = "") -> None:
    """Let the API server call a manager at ``port`` of the loopback device.

    Args:
        client: an administrator's.
        port: of the webhook server.
        bundle: base64 of the authorities to trust, if no manager fills them in.
    """
    text = (CONFIG / "webhook/configurations.yaml").read_text()
    for document in yaml.safe_load_all(text):
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
            if bundle:
                webhook["clientConfig"]["caBundle"] = bundle
        await apply_object(client, document)


async def delete_webhooks(client: Client) -> None:
    """Delete the webhook configurations, if they exist."""
    for kind, name in _NAMES:
        with contextlib.suppress(NotFoundError):
            await client.delete(kind, "", name)
