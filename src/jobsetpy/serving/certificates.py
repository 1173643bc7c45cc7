"""Certificate of a server: its source, rotation, and reload while the server runs.

There are three sources: a Secret with our own authority, shared by all replicas; files written by
others, such as cert-manager by means of a mounted Secret; and a self-signed certificate in memory.
A :class:`CertificateManager` loads from a source and passes the server a new TLS context on each
change.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs

from jobsetpy import aio
from jobsetpy.api.core import Secret
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
"""Time for clients to see a changed authority before it is used, in seconds."""
_WRITE_ATTEMPTS: Final = 6
"""Maximum number of attempts of a write; only a few replicas write concurrently."""
_EMPTY_PERIOD_S: Final = 0.5
"""Interval between checks of a source that has no certificate yet, in seconds."""


async def write_secret(client: Client, secret: Secret, data: Mapping[str, bytes]) -> None:
    """Replace some values of a Secret that was read before.

    Raises:
        ConflictError: it has changed since.
    """
    patch = {
        "metadata": {"resourceVersion": secret.metadata.resource_version},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }
    await client.merge_patch(Secret, secret.metadata.namespace, secret.metadata.name, patch)


class Source(Protocol):
    """Source of a server's certificate."""

    async def current(self) -> TlsMaterial | None:
        """Return the current certificate; ``None`` if it is not complete yet."""
        ...

    async def renew(self) -> bool:
        """Issue what is missing or expires soon; return whether ``current`` may have changed."""
        ...


@attrs.frozen
class FileSource:
    """``tls.crt`` and ``tls.key`` in a folder, as cert-manager's Secrets are mounted.

    Args:
        folder: the folder.
        client_authorities: file with the authorities of clients; ``None`` allows any client.
        otherwise: source of a certificate while a file is missing; ``None``: there is none then.
    """

    folder: Path
    client_authorities: Path | None = None
    otherwise: Source | None = None

    async def current(self) -> TlsMaterial | None:
        """Read the files.

        Raises:
            OSError: a file cannot be read.
        """
        try:
            return await asyncio.to_thread(self._read)
        except FileNotFoundError:
            if self.otherwise is None:
                raise
            return await self.otherwise.current()

    async def renew(self) -> bool:
        """Do nothing while the files exist: their writer renews them."""
        if self.otherwise is None or await asyncio.to_thread(self._exist):
            return False
        renewed = await self.otherwise.renew()
        if renewed:
            get_logger("certificates").warning(
                "the folder has no certificate: serving with one that was made here",
                missing=f"{TLS_CERT} or {TLS_KEY}",
                folder=str(self.folder),
            )
        return renewed

    def _exist(self) -> bool:
        return all((self.folder / name).exists() for name in (TLS_CERT, TLS_KEY))

    def _read(self) -> TlsMaterial:
        certificate, key = (self.folder / name for name in (TLS_CERT, TLS_KEY))
        pair = KeyPair(certificate.read_bytes(), key.read_bytes())
        authorities = self.client_authorities
        return TlsMaterial(pair, None if authorities is None else authorities.read_bytes())


class SelfSignedSource:
    """Certificate in memory, for an endpoint whose clients do not verify it.

    It still encrypts the connection.
    """

    def __init__(self, names: Sequence[str], clock: aio.Clock | None = None) -> None:
        self._names = tuple(names)
        self._clock = clock or aio.LoopClock()
        self._pair: KeyPair | None = None
        self._authority = b""

    async def current(self) -> TlsMaterial | None:
        """Return the current certificate; ``None`` before the first ``renew``."""
        return None if self._pair is None else TlsMaterial(self._pair)

    async def renew(self) -> bool:
        """Create a certificate if none is valid long enough; return whether one was created."""
        now, pair = self._clock.now(), self._pair
        if pair is not None and x509.serving_usable(pair, self._authority, self._names, now):
            return False
        authority = await asyncio.to_thread(x509.new_authority, now)
        self._pair = await asyncio.to_thread(x509.new_serving, authority, self._names, now)
        self._authority = authority.certificate
        return True


@attrs.frozen(kw_only=True)
class SecretSource:
    """Certificates of our own authority, in an existing Secret that all replicas share.

    Each step is derived from the stored state, and written under the Secret's resourceVersion: if
    replicas take the same step concurrently, one wins and the others read again. Clients can call
    every replica throughout a change of authority: old and new authority are stored and
    distributed together before any certificate of the new one is served.

    Args:
        client: client that may get and patch the Secret.
        namespace, name: the Secret.
        dns_names: names of the server; IP addresses are recognised as such.
        clock: clock for the dates of certificates.
        distribute: adds the authority for clients that do not have it; returns whether there were
            any. It may raise ``ApiError``.
        settle_s: time for clients of a running server to notice a change, in seconds.
        mutual: require a certificate of the authority from clients.
        elliptic: as in :func:`x509.new_serving`.
        authority_name: as in :func:`x509.new_authority`.
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
        """Read the Secret; return ``None`` if it is not complete.

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
        """Issue what is missing or expires soon, and distribute the authority.

        Raises:
            ApiError: an object cannot be read or written.
        """
        changed = False
        for _ in range(_WRITE_ATTEMPTS):
            try:
                if not await self._step():
                    return changed
            except ConflictError:
                pass  # another replica was faster: continue from its result
            changed = True
        return changed

    async def _step(self) -> bool:
        """Make at most one change of the Secret; return whether more may be needed."""
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
    """Keeps the certificate of one server valid: loads, renews and reloads it.

    Args:
        source: source of certificates.
        server: name of the server, in metrics and log lines.
        period_s: interval between checks of the source, in seconds.
        policy: versions and ciphers.
        backoff: delays after failures.
        clock: wall clock to check the validity of certificates.

    Raises:
        ValueError: the TLS library supports none of the policy's ciphers.
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
        self.policy.new_context()  # fail now if the policy is not supported

    def problems(self) -> Iterable[str]:
        """Yield the reasons why clients cannot call the server; nothing if they can.

        They can from the first renewal on, since only then do they trust the served certificate.
        """
        if self._complete:
            if ended := self._out_of_time():
                yield ended
        elif self._served is None:
            yield self._problem or "there is no certificate yet"
        else:
            yield self._problem or "certificates are not ready yet"

    async def run(self, use: Callable[[ssl.SSLContext], Awaitable[None]]) -> None:
        """Run until cancelled. Failures are logged and retried; a loaded certificate stays in use.

        Args:
            use: makes the server accept connections with a new context.
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
        # Stored state first: a replica that cannot write must still serve the others' certificate.
        unusable = await self._load(use)
        if await self.source.renew():
            unusable = await self._load(use)
        if unusable is not None:
            # Renewing repairs our own certificates; files of a folder are being replaced.
            raise ValueError(f"the certificate cannot be used: {unusable}")

    async def _load(self, use: Callable[[ssl.SSLContext], Awaitable[None]]) -> Exception | None:
        """Serve with the current material if it has changed; return why it is not usable, if so."""
        metrics.certificate_read()
        try:
            material = await self.source.current()
        except (JobSetPyError, OSError):
            metrics.certificate_read(failed=True)
            raise
        if material is None or material == self._served:
            return None
        try:
            context, life = self.policy.new_context(material), x509.lifetime(material.pair)
        except (ssl.SSLError, ValueError) as error:
            metrics.certificate_read(failed=True)
            return error
        await use(context)
        self._served, self._life = material, life
        metrics.certificate_ends(self._server, life.ends)
        self._log.info(
            "serving with a new certificate", server=self._server, ends=life.ends.isoformat()
        )
        return None

    def _out_of_time(self) -> str:
        """Return why the served certificate is not valid now; "" if it is."""
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
