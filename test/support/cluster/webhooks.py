"""The shipped webhook configurations for a manager on this machine, without a Service."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from jobsetpy.admission import WebhookSettings
from jobsetpy.client import Client
from jobsetpy.errors import NotFoundError
from jobsetpy.serving import x509
from jobsetpy.serving.webhook_certificates import MutatingConfiguration, ValidatingConfiguration
from support.cluster.install import CONFIG, apply_object

_NAMES: Final[tuple[tuple[type[Any], str], ...]] = (
    (MutatingConfiguration, "jobset-mutating-webhook-configuration"),
    (ValidatingConfiguration, "jobset-validating-webhook-configuration"),
)


def webhook_settings(port: int, **fields: Any) -> WebhookSettings:
    """Settings of a manager whose webhooks listen on ``port`` of loopback."""
    defaults: dict[str, Any] = {
        "bind_address": f"127.0.0.1:{port}",
        "extra_dns_names": ("127.0.0.1",),
        "check_period_s": 0.5,
        "agent_image": "test.invalid/agent:1",
    }
    return WebhookSettings(**{**defaults, **fields})


def write_certificate(folder: Path) -> tuple[x509.KeyPair, x509.KeyPair]:
    """Write a certificate for loopback and its key into a folder; return its authority, and both."""
    authority = x509.new_authority(datetime.now(UTC))
    pair = x509.new_serving(authority, ["127.0.0.1"], datetime.now(UTC))
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return authority, pair


def webhook_flags(port: int, folder: Path) -> tuple[str, ...]:
    """Return a manager's flags for webhooks on loopback, with the certificate in a folder."""
    address = f"--webhook-bind-address=127.0.0.1:{port}"
    return "--webhooks", address, f"--webhook-cert-dir={folder}"


def bundle_of(*authorities: x509.KeyPair) -> str:
    """Return the authorities that a webhook's configuration has to trust."""
    return base64.b64encode(b"".join(each.certificate for each in authorities)).decode()


async def apply_webhooks(
    client: Client,
    port: int,
    bundle: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    suffix: str = "",
    documents: Iterable[dict[str, Any]] | None = None,
) -> None:
    """Make the API server call a manager that listens on ``port`` of loopback.

    Args:
        client: an administrator's.
        port: of the webhook server.
        bundle: base64 of the authorities to trust, where no manager fills them in.
        labels: labels of the namespaces that the webhooks are limited to; ``None``: no limit.
        suffix: appended to the names of the configurations.
        documents: the configurations; ``None``: those of ``config/webhook``.
    """
    if documents is None:
        documents = yaml.safe_load_all((CONFIG / "webhook/configurations.yaml").read_text())
    for document in documents:
        document["metadata"]["name"] += suffix
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
            if labels:
                webhook["namespaceSelector"] = {"matchLabels": dict(labels)}
            if bundle:
                webhook["clientConfig"]["caBundle"] = bundle
        await apply_object(client, document)


async def delete_webhooks(client: Client, suffix: str = "") -> None:
    """Delete the configurations that :func:`apply_webhooks` has applied."""
    for kind, name in _NAMES:
        with contextlib.suppress(NotFoundError):
            await client.delete(kind, "", name + suffix)
