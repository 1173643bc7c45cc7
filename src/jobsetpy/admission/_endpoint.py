"""The certificate of an endpoint that is no webhook: files of a folder, or one made in memory.

Nobody is told to trust a certificate that the process makes for itself; it keeps what is read from
being seen on the way, as a scraper that does not verify it knows.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from jobsetpy import aio
from jobsetpy.admission._keeper import CertificateKeeper
from jobsetpy.admission._sources import FileSource
from jobsetpy.serving import tls, x509
from jobsetpy.serving.x509 import KeyPair

CHECK_PERIOD_S = 60.0


class SelfMadeSource:
    """A certificate in memory, made anew 90 days before its end."""

    def __init__(self, names: Sequence[str], clock: aio.Clock) -> None:
        self._names = tuple(names)
        self._clock = clock
        self._pair: KeyPair | None = None
        self._authority = b""

    async def serving(self) -> KeyPair | None:
        """The present one; ``None`` before the first ``renew``."""
        return self._pair

    async def renew(self) -> bool:
        """Make one if there is none that lasts; whether one was made."""
        now = self._clock.now()
        pair = self._pair
        if pair is not None and x509.serving_usable(pair, self._authority, self._names, now):
            return False
        authority = await asyncio.to_thread(x509.new_authority, now)
        self._pair = await asyncio.to_thread(x509.new_serving, authority, self._names, now)
        self._authority = authority.certificate
        return True


class EndpointCertificate:
    """TLS of one endpoint, kept good within ``running()``.

    Args:
        folder: with ``tls.crt`` and ``tls.key``, read again as they change; ``None``: self-made.
        names: for a self-made one: DNS names or IP addresses.
        tls13_only, ciphers: as of the webhook server.
        clock: for the dates of a self-made one.

    Raises:
        ValueError: the TLS library has none of ``ciphers``.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        names: Sequence[str] = ("localhost",),
        tls13_only: bool = False,
        ciphers: Sequence[str] = (),
        clock: aio.Clock | None = None,
    ) -> None:
        source = (
            FileSource(folder)
            if folder is not None
            else SelfMadeSource(names, clock or aio.LoopClock())
        )
        self._keeper = CertificateKeeper(
            source,
            period_s=CHECK_PERIOD_S,
            context=tls.new_context(tls13_only=tls13_only, ciphers=ciphers),
            server="metrics",
        )

    @property
    def context(self) -> ssl.SSLContext:
        """For the server; handshakes fail until there is a certificate."""
        return self._keeper.context

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load, renew and reload it within the block."""
        async with aio.supervise() as tasks:
            tasks.start(self._keeper.run(), name="endpoint-certificate")
            yield
