"""Certificate of the webhook server, and its distribution to API servers.

API servers read the authorities that they trust from the objects that configure webhooks.
"""

from __future__ import annotations

import base64
from typing import Final

from jobsetpy import aio
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.unstructured import Unstructured, unstructured
from jobsetpy.client import Client
from jobsetpy.serving.certificates import SETTLE_S, CertificateManager, FileSource, SecretSource
from jobsetpy.serving.webhook_settings import WebhookServerSettings
from jobsetpy.serving.x509 import KeyPair

FILES_PERIOD_S = 2.0
"""Maximum interval between checks of files, in seconds: cheap, and the old certificate's authority
may already have been revoked when they are replaced."""


def _of_cluster(group: str, kind: str) -> type[Unstructured]:
    return unstructured(ResourceInfo(group, "v1", kind, f"{kind.lower()}s", namespaced=False))


MutatingConfiguration: Final = _of_cluster(
    "admissionregistration.k8s.io", "MutatingWebhookConfiguration"
)
ValidatingConfiguration: Final = _of_cluster(
    "admissionregistration.k8s.io", "ValidatingWebhookConfiguration"
)


def certificate_manager(
    client: Client, settings: WebhookServerSettings, clock: aio.Clock
) -> CertificateManager:
    """Return the certificate manager of the webhook server, from the Secret or from files."""
    folder, period_s = settings.certificate_dir, settings.check_period_s
    return CertificateManager(
        secret_source(client, settings, clock) if folder is None else FileSource(folder),
        server="webhooks",
        period_s=period_s if folder is None else min(period_s, FILES_PERIOD_S),
        policy=settings.tls,
        clock=clock,
    )


def secret_source(
    client: Client, settings: WebhookServerSettings, clock: aio.Clock
) -> SecretSource:
    """Return the shared Secret as a source; API servers get its authority by the configurations."""

    async def distribute(authority: KeyPair) -> bool:
        return await inject(client, settings, authority.certificate)

    return SecretSource(
        client=client,
        namespace=settings.namespace,
        name=settings.secret_name,
        dns_names=settings.dns_names,
        clock=clock,
        distribute=distribute,
        settle_s=SETTLE_S,
        authority_name=settings.authority_name,
    )


async def inject(client: Client, settings: WebhookServerSettings, authorities: bytes) -> bool:
    """Write the CA bundle to configurations without it; return whether there were any.

    Raises:
        ApiError: one of them cannot be read or written.
    """
    injected = False
    encoded = base64.b64encode(authorities).decode()
    targets = (
        (ValidatingConfiguration, settings.validating_configuration),
        (MutatingConfiguration, settings.mutating_configuration),
    )
    for kind, name in targets:
        if not name:
            continue
        configuration = await client.get(kind, "", name)
        patch = [
            operation
            for at, webhook in enumerate(configuration.at("webhooks", ()))
            if webhook["clientConfig"].get("caBundle") != encoded
            for operation in (
                # The list may have changed since it was read.
                {"op": "test", "path": f"/webhooks/{at}/name", "value": webhook["name"]},
                {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": encoded},
            )
        ]
        if patch:
            await client.json_patch(kind, "", name, patch)
            injected = True
    return injected
