"""Certificates of the coscheduler's own: for itself, and for the scheduler that calls it.

Two Secrets, which have to exist and begin empty: what the coscheduler serves with, its authority
included, and what a scheduler calls with. Only the second one is for others: a scheduler mounts it
(or somebody copies it to where the scheduler is). All replicas share both; each write is under the
Secret's resourceVersion, so that of replicas that do the same at once one wins.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Final

from jobsetpy import aio
from jobsetpy.client import Client
from jobsetpy.coscheduler._settings import CoschedulerSettings
from jobsetpy.coscheduler._tls import Material
from jobsetpy.errors import ConflictError
from jobsetpy.serving import x509
from jobsetpy.serving.secrets import CA_CERT, CA_KEY, TLS_CERT, TLS_KEY, Secret, decoded
from jobsetpy.serving.x509 import KeyPair

_ATTEMPTS: Final = 6
"""Steps of one pass: an authority, a server's and a client's certificate, and lost races."""


class Secrets:
    """A source of material that is made here.

    Args:
        client: may get and patch the two Secrets.
        settings: names.
        clock: for the dates of certificates.
    """

    def __init__(self, client: Client, settings: CoschedulerSettings, *, clock: aio.Clock) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock

    async def material(self) -> Material | None:
        """What the Secret holds.

        Raises:
            ApiError: it cannot be read; ``NotFoundError`` if it is missing.
        """
        held = decoded(await self._get(self._settings.server_secret))
        if not all(held.get(name) for name in (CA_CERT, TLS_CERT, TLS_KEY)):
            return None
        return Material(KeyPair(held[TLS_CERT], held[TLS_KEY]), held[CA_CERT])

    async def renew(self) -> bool:
        """Issue what is missing or ends soon.

        Raises:
            ApiError: a Secret cannot be read or written.
        """
        changed = False
        for _ in range(_ATTEMPTS):
            try:
                if not await self._step():
                    return changed
            except ConflictError:
                pass  # another replica was faster: go on from what it wrote
            changed = True
        return changed

    async def _step(self) -> bool:
        """Write at most one thing; whether there may be more to do."""
        settings, now = self._settings, self._clock.now()
        server = await self._get(settings.server_secret)
        held = decoded(server)
        authority = KeyPair(held.get(CA_CERT, b""), held.get(CA_KEY, b""))
        if not x509.authority_usable(authority, now):
            made = await asyncio.to_thread(x509.new_authority, now)
            both = x509.bundle(made.certificate, authority.certificate, now)
            await self._write(server, {CA_CERT: both, CA_KEY: made.key})
            return True
        names = settings.dns_names
        pair = KeyPair(held.get(TLS_CERT, b""), held.get(TLS_KEY, b""))
        if not x509.serving_usable(pair, authority.certificate, names, now):
            issued = await asyncio.to_thread(x509.new_serving, authority, names, now, elliptic=True)
            await self._write(server, {TLS_CERT: issued.certificate, TLS_KEY: issued.key})
            return True
        client = await self._get(settings.client_secret)
        given = decoded(client)
        name = settings.client_names[0]
        pair = KeyPair(given.get(TLS_CERT, b""), given.get(TLS_KEY, b""))
        wanted: dict[str, bytes] = {}
        if not x509.client_usable(pair, authority.certificate, name, now):
            issued = await asyncio.to_thread(x509.new_client, authority, name, now)
            wanted = {TLS_CERT: issued.certificate, TLS_KEY: issued.key}
        if given.get(CA_CERT) != authority.certificate:
            wanted[CA_CERT] = authority.certificate
        if wanted:
            await self._write(client, wanted)
        return bool(wanted)

    async def _get(self, name: str) -> Secret:
        return await self._client.get(Secret, self._settings.namespace, name)

    async def _write(self, secret: Secret, data: Mapping[str, bytes]) -> None:
        await self._client.merge_patch(
            Secret,
            self._settings.namespace,
            secret.metadata.name,
            {
                "metadata": {"resourceVersion": secret.metadata.resource_version},
                "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
            },
        )
