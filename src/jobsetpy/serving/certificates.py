"""A server's certificate: where it comes from, and how it is rotated and reloaded while it serves.

There are three sources: a Secret with an authority of our own, which all replicas share; files that
others write, such as cert-manager by way of a mounted Secret; and a self-signed one in memory.
A :class:`CertificateManager` loads from a source and hands the server a new TLS context with each
change.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Protocol

import attrs

from jobsetpy import aio
from jobsetpy.api._wire import wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource
from jobsetpy.client import Client
from jobsetpy.errors import ConflictError, JobSetPyError
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving import x509
from jobsetpy.serving.tls import TlsMaterial, TlsPolicy
from jobsetpy.serving.x509 import KeyPair

CA_CERT, CA_KEY, TLS_CERT, TLS_KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"

RETRY_CAP_S: Final = 10.0
SETTLE_S: Final = 1.0
"""How long clients get to see a changed authority before it is relied on."""
_WRITE_ATTEMPTS: Final = 6
"""Writes that lose to another replica are made anew; no more than a few replicas write at once."""
_EMPTY_PERIOD_S: Final = 0.5
"""How often a source that has no certificate yet is looked at."""


@resource("", "v1", "Secret", "secrets")
@wire
class Secret:
    """A Secret; values are base64."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None

    def values(self) -> dict[str, bytes]:
        """Decoded values; one that is no base64 counts as missing."""
        out = {}
        for name, value in (self.data or {}).items():
            try:
                out[name] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                continue
        return out


async def write_secret(client: Client, secret: Secret, data: Mapping[str, bytes]) -> None:
    """Replace some values of a Secret as it was read.

    Raises:
        ConflictError: it has changed since.
    """
    patch = {
        "metadata": {"resourceVersion": secret.metadata.resource_version},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
    await client.merge_patch(Secret, secret.metadata.namespace, secret.metadata.name, patch)


class Source(Protocol):
    """Gives the certificate to serve with."""

    async def current(self) -> TlsMaterial | None:
        """What is there now; ``None`` if it is not complete yet."""
        ...

    async def renew(self) -> bool:
        """Issue what is missing or ends soon; whether ``current`` may have changed."""
        ...


@attrs.frozen
class FileSource:
    """``tls.crt`` and ``tls.key`` of a folder, as cert-manager's Secrets are mounted.

    Args:
        folder: where they are.
        client_authorities: a file with the authorities of clients; ``None``: any client is let in.
    """

    folder: Path
    client_authorities: Path | None = None

    async def current(self) -> TlsMaterial | None:
        """What the files hold.

        Raises:
            OSError: a file cannot be read.
        """
        return await asyncio.to_thread(self._read)

    async def renew(self) -> bool:
        """Nothing: renewing is up to whoever writes the files."""
        return False

    def _read(self) -> TlsMaterial:
        certificate, key = (self.folder / name for name in (TLS_CERT, TLS_KEY))
        pair = KeyPair(certificate.read_bytes(), key.read_bytes())
        authorities = self.client_authorities
        return TlsMaterial(pair, None if authorities is None else authorities.read_bytes())


class SelfSignedSource:
    """A certificate in memory, for an endpoint whose clients do not verify it.

    It still keeps what is read from being seen on the way.
    """

    def __init__(self, names: Sequence[str], clock: aio.Clock | None = None) -> None:
        self._names = tuple(names)
        self._clock = clock or aio.LoopClock()
        self._pair: KeyPair | None = None
        self._authority = b""

    async def current(self) -> TlsMaterial | None:
        """The present one; ``None`` before the first ``renew``."""
        return None if self._pair is None else TlsMaterial(self._pair)

    async def renew(self) -> bool:
        """Make one if there is none that lasts; whether one was made."""
        now, pair = self._clock.now(), self._pair
        if pair is not None and x509.serving_usable(pair, self._authority, self._names, now):
            return False
        authority = await asyncio.to_thread(x509.new_authority, now)
        self._pair = await asyncio.to_thread(x509.new_serving, authority, self._names, now)
        self._authority = authority.certificate
        return True


@attrs.frozen(kw_only=True)
class SecretSource:
    """Certificates of our own, kept in a Secret that has to exist and that all replicas share.

    Each step is taken from what is stored, and written under the Secret's resourceVersion: of
    replicas that do the same at once one wins, and the others read again. The order of a change of
    authority keeps clients able to call every replica: old and new authority are stored and
    distributed together before any certificate of the new one is served.

    Args:
        client: may get and patch the Secret.
        namespace, name: of the Secret.
        dns_names: of the server; those that are IP addresses count as such.
        clock: for the dates of certificates.
        distribute: gives clients the authority where they lack it; whether some did. It may raise
            ``ApiError``.
        settle_s: how long clients of a server that serves already take to notice, in seconds.
        mutual: clients need a certificate of the authority.
        elliptic: see :func:`x509.new_serving`.
        authority_name: see :func:`x509.new_authority`.
    """

    client: Client
    namespace: str
    name: str
    dns_names: Sequence[str]
    clock: aio.Clock
    distribute: Callable[[KeyPair], Awaitable[bool]]
    settle_s: float = 0.0
    mutual: bool = False
    elliptic: bool = False
    authority_name: str = x509.AUTHORITY_NAME

    async def current(self) -> TlsMaterial | None:
        """What the Secret holds.

        Raises:
            ApiError: the Secret cannot be read; ``NotFoundError`` if it is missing.
        """
        stored = (await self._get()).values()
        needed = (TLS_CERT, TLS_KEY, CA_CERT) if self.mutual else (TLS_CERT, TLS_KEY)
        if not all(stored.get(name) for name in needed):
            return None
        pair = KeyPair(stored[TLS_CERT], stored[TLS_KEY])
        return TlsMaterial(pair, stored[CA_CERT] if self.mutual else None)

    async def renew(self) -> bool:
        """Issue what is missing or ends soon, and distribute the authority.

        Raises:
            ApiError: something cannot be read or written.
        """
        changed = False
        for _ in range(_WRITE_ATTEMPTS):
            try:
                if not await self._step():
                    return changed
            except ConflictError:
                pass  # another replica was faster: go on from what it wrote
            changed = True
        return changed

    async def _step(self) -> bool:
        """Write at most one thing to the Secret; whether there may be more to do."""
        secret, now = await self._get(), self.clock.now()
        stored = secret.values()
        authority = KeyPair(stored.get(CA_CERT, b""), stored.get(CA_KEY, b""))
        if not x509.authority_usable(authority, now):
            made = await asyncio.to_thread(x509.new_authority, now, self.authority_name)
            both = x509.bundle(made.certificate, authority.certificate, now)
            await write_secret(self.client, secret, {CA_CERT: both, CA_KEY: made.key})
            return True
        if await self.distribute(authority) and stored.get(TLS_CERT):
            await asyncio.sleep(self.settle_s)
        serving = KeyPair(stored.get(TLS_CERT, b""), stored.get(TLS_KEY, b""))
        if x509.serving_usable(serving, authority.certificate, self.dns_names, now):
            return False
        issued = await asyncio.to_thread(
            x509.new_serving, authority, self.dns_names, now, elliptic=self.elliptic
        )
        await write_secret(self.client, secret, {TLS_CERT: issued.certificate, TLS_KEY: issued.key})
        return True

    async def _get(self) -> Secret:
        return await self.client.get(Secret, self.namespace, self.name)


class CertificateManager:
    """Keeps the certificate of one server good: loads, renews and reloads it.

    Args:
        source: where certificates come from.
        server: what it is for, in metrics and log lines.
        period_s: how often the source is looked at.
        policy: versions and ciphers.
        backoff: waits after failures.
        clock: the wall clock tells whether a certificate has ended.

    Raises:
        ValueError: the TLS library has none of the policy's ciphers.
    """

    def __init__(
        self,
        source: Source,
        *,
        server: str,
        period_s: float,
        policy: TlsPolicy | None = None,
        backoff: Callable[[], aio.Backoff] = lambda: aio.Backoff(base=0.5, cap=RETRY_CAP_S),
        clock: aio.Clock | None = None,
    ) -> None:
        self.source = source
        self._server = server
        self._period_s = period_s
        self.policy = policy or TlsPolicy()
        self._backoff = backoff()
        self._clock = clock or aio.LoopClock()
        self._served: TlsMaterial | None = None
        self._life: x509.Lifetime | None = None
        self._complete = False
        self._problem = ""
        self._log = get_logger("certificates")
        self.policy.new_context()  # tells now what it cannot do

    def problems(self) -> Iterable[str]:
        """Why clients cannot call, or not yet; nothing while they can.

        They can from the first renewal on, since only then they trust what is served.
        """
        if self._complete:
            if ended := self._out_of_time():
                yield ended
        elif self._served is None:
            yield self._problem or "there is no certificate yet"
        else:
            yield self._problem or "certificates are not ready yet"

    async def run(self, use: Callable[[ssl.SSLContext], Awaitable[None]]) -> None:
        """Until cancelled. Failures are logged and tried again; a certificate once loaded stays.

        Args:
            use: has the server accept connections with another context.
        """
        while True:
            try:
                await self._refresh(use)
            except (JobSetPyError, OSError, ValueError) as error:
                self._report(str(error))
                await asyncio.sleep(self._backoff.next())
                continue
            self._backoff.reset()
            self._complete = self._served is not None
            self._report(self._out_of_time())
            await asyncio.sleep(self._period_s if self._complete else _EMPTY_PERIOD_S)

    async def _refresh(self, use: Callable[[ssl.SSLContext], Awaitable[None]]) -> None:
        # What is there first: a replica that cannot write must still serve what others wrote.
        unusable = await self._load(use)
        if await self.source.renew():
            unusable = await self._load(use)
        if unusable is not None:
            # Renewing repairs what is ours; a folder's files are in the middle of an exchange.
            msg = f"the certificate cannot be used: {unusable}"
            raise ValueError(msg)

    async def _load(self, use: Callable[[ssl.SSLContext], Awaitable[None]]) -> Exception | None:
        """Serve with what is there, if it has changed; why it cannot be used, if so."""
        material = await self.source.current()
        if material is None or material == self._served:
            return None
        try:
            context, life = self.policy.new_context(material), x509.lifetime(material.pair)
        except (ssl.SSLError, ValueError) as error:
            return error
        await use(context)
        self._served, self._life = material, life
        metrics.certificate_ends(self._server, life.ends)
        self._log.info(
            "serving with a new certificate", server=self._server, ends=life.ends.isoformat()
        )
        return None

    def _out_of_time(self) -> str:
        """Why nobody accepts the certificate that is served; "" while they do."""
        life, now = self._life, self._clock.now()
        if life is None or life.begins <= now < life.ends:
            return ""
        if now < life.begins:
            return f"the certificate is not valid before {life.begins.isoformat()}"
        return f"the certificate ended at {life.ends.isoformat()}"

    def _report(self, problem: str) -> None:
        """Log each different problem once."""
        if problem and problem != self._problem:
            self._log.warning("certificates are not as they should be", error=problem)
        self._problem = problem
