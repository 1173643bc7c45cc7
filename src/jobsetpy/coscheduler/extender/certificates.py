"""Certificate of the extender, and the client certificate of a scheduler.

Clients that can call the extender can bind pods, so a client needs a certificate from a given
authority and with a given name. Certificates created by the coscheduler are in two Secrets, which
have to exist and are empty at first: its serving certificate including the authority, and the
client certificate of a scheduler. Only the second one is for others: a scheduler mounts it (or it
is copied to where the scheduler runs).
"""

from __future__ import annotations

import asyncio
from functools import partial

from jobsetpy import aio
from jobsetpy.api import keys
from jobsetpy.api.core import Secret
from jobsetpy.client import Client
from jobsetpy.coscheduler._settings import CHECK_PERIOD_S, CoschedulerSettings
from jobsetpy.serving import x509
from jobsetpy.serving.certificates import (
    CA_CERT,
    TLS_CERT,
    TLS_KEY,
    CertificateManager,
    FileSource,
    SecretSource,
    write_secret,
)
from jobsetpy.serving.x509 import KeyPair


def certificate_manager(
    client: Client, settings: CoschedulerSettings, clock: aio.Clock
) -> CertificateManager | None:
    """Return the extender's certificates, from Secrets or from files; ``None`` for plain HTTP."""
    folder = settings.certificate_dir
    if settings.plain_http:
        return None
    return CertificateManager(
        secret_source(client, settings, clock)
        if folder is None
        else FileSource(folder, folder / CA_CERT),
        server="extender",
        period_s=CHECK_PERIOD_S,
        clock=clock,
    )


def secret_source(client: Client, settings: CoschedulerSettings, clock: aio.Clock) -> SecretSource:
    """Return the two Secrets that replicas share."""
    return SecretSource(
        client=client,
        namespace=settings.namespace,
        name=settings.server_secret,
        dns_names=settings.dns_names,
        clock=clock,
        distribute=partial(_issue_to_client, client, settings, clock),
        mutual=True,
        elliptic=True,
        authority_name=keys.AUTHORITY_NAME,
    )


async def _issue_to_client(
    client: Client, settings: CoschedulerSettings, clock: aio.Clock, authority: KeyPair
) -> bool:
    """Issue the client's certificate if it is missing or expires soon; return True if written.

    Raises:
        ApiError: the Secret cannot be read or written.
    """
    secret = await client.get(Secret, settings.namespace, settings.client_secret)
    stored, now, name = secret.values(), clock.now(), settings.client_names[0]
    pair = KeyPair(stored.get(TLS_CERT, b""), stored.get(TLS_KEY, b""))
    changes: dict[str, bytes] = {}
    if not x509.client_usable(pair, authority.certificate, name, now):
        issued = await asyncio.to_thread(x509.new_client, authority, name, now)
        changes = {TLS_CERT: issued.certificate, TLS_KEY: issued.key}
    if stored.get(CA_CERT) != authority.certificate:
        changes[CA_CERT] = authority.certificate
    if changes:
        await write_secret(client, secret, changes)
    return bool(changes)
