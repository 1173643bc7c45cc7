"""Where the serving certificate comes from: the shared Secret, or files that others fill."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Protocol

from jobsetpy import aio
from jobsetpy.admission._kinds import MutatingConfiguration, ValidatingConfiguration
from jobsetpy.admission._settings import WebhookSettings
from jobsetpy.client import Client
from jobsetpy.errors import ConflictError
from jobsetpy.serving import x509
from jobsetpy.serving.secrets import CA_CERT, CA_KEY, TLS_CERT, TLS_KEY, Secret, decoded
from jobsetpy.serving.x509 import KeyPair

_ATTEMPTS = 5
"""Writes that lose to another replica are made anew; no more than a few replicas write at once."""

SETTLE_S = 1.0
"""How long API servers get to see a changed bundle before it is relied on."""


class Source(Protocol):
    """Gives the certificate to serve with."""

    async def serving(self) -> KeyPair | None:
        """The certificate that is there now; ``None`` if there is none yet."""
        ...

    async def renew(self) -> bool:
        """Do what is needed for there to be a good one; whether ``serving`` may have changed."""
        ...


class FileSource:
    """``tls.crt`` and ``tls.key`` of a folder, as cert-manager's Secrets are mounted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def serving(self) -> KeyPair | None:
        """What the files hold.

        Raises:
            OSError: a file cannot be read.
        """
        return await asyncio.to_thread(self._read)

    async def renew(self) -> bool:
        """Nothing: renewing is the business of whoever writes the files."""
        return False

    def _read(self) -> KeyPair:
        return KeyPair(
            (self._folder / TLS_CERT).read_bytes(), (self._folder / TLS_KEY).read_bytes()
        )


class SecretSource:
    """Certificates of our own, kept in a Secret that all replicas share.

    Each step is taken from what is stored, and written under the Secret's resourceVersion: of
    replicas that do the same at once one wins, and the others read again. The order of a change of
    authority keeps the API server able to call every replica: new and old authority are stored
    and injected together before any certificate of the new one is served.
    """

    def __init__(self, client: Client, settings: WebhookSettings, *, clock: aio.Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock

    async def serving(self) -> KeyPair | None:
        """What the Secret holds.

        Raises:
            ApiError: the Secret cannot be read; ``NotFoundError`` if it is missing.
        """
        stored = decoded(await self._get())
        if not stored.get(TLS_CERT) or not stored.get(TLS_KEY):
            return None
        return KeyPair(stored[TLS_CERT], stored[TLS_KEY])

    async def renew(self) -> bool:
        """Issue what is missing or ends soon, and inject the authority.

        Raises:
            ApiError: Secret or configurations cannot be read or written.
        """
        changed = False
        for _ in range(_ATTEMPTS):
            secret = await self._get()
            try:
                if not await self._step(secret):
                    return changed
            except ConflictError:
                pass  # another replica was faster: go on from what it wrote
            changed = True
        return changed

    async def _step(self, secret: Secret) -> bool:
        """Write at most one thing to the Secret; whether there may be more to do."""
        stored, now = decoded(secret), self._clock.now()
        authority = KeyPair(stored.get(CA_CERT, b""), stored.get(CA_KEY, b""))
        if not x509.authority_usable(authority, now):
            made = await asyncio.to_thread(x509.new_authority, now)
            both = x509.bundle(made.certificate, authority.certificate, now)
            await self._write(secret, {CA_CERT: both, CA_KEY: made.key})
            return True
        if await self._inject(authority.certificate) and stored.get(TLS_CERT):
            # API servers hear of it by their watches; until then they trust what is served now.
            await asyncio.sleep(SETTLE_S)
        serving = KeyPair(stored.get(TLS_CERT, b""), stored.get(TLS_KEY, b""))
        names = self._settings.dns_names
        if x509.serving_usable(serving, authority.certificate, names, now):
            return False
        issued = await asyncio.to_thread(x509.new_serving, authority, names, now)
        await self._write(secret, {TLS_CERT: issued.certificate, TLS_KEY: issued.key})
        return True

    async def _get(self) -> Secret:
        return await self._client.get(Secret, self._settings.namespace, self._settings.secret_name)

    async def _write(self, secret: Secret, data: dict[str, bytes]) -> None:
        await self._client.merge_patch(
            Secret,
            self._settings.namespace,
            self._settings.secret_name,
            {
                "metadata": {"resourceVersion": secret.metadata.resource_version},
                "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
            },
        )

    async def _inject(self, authorities: bytes) -> bool:
        """Put the bundle where it is missing; whether it was."""
        injected = False
        encoded = base64.b64encode(authorities).decode()
        settings = self._settings
        targets: tuple[tuple[type[ValidatingConfiguration | MutatingConfiguration], str], ...] = (
            (ValidatingConfiguration, settings.validating_configuration),
            (MutatingConfiguration, settings.mutating_configuration),
        )
        for kind, name in targets:
            configuration = await self._client.get(kind, "", name)
            patch = [
                operation
                for at, webhook in enumerate(configuration.webhooks)
                if webhook.client_config.ca_bundle != encoded
                for operation in (
                    # The list may have changed since it was read.
                    {"op": "test", "path": f"/webhooks/{at}/name", "value": webhook.name},
                    {
                        "op": "add",
                        "path": f"/webhooks/{at}/clientConfig/caBundle",
                        "value": encoded,
                    },
                )
            ]
            if patch:
                await self._client.json_patch(kind, "", name, patch)
                injected = True
        return injected
