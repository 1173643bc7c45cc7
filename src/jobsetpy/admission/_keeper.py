"""Keeps the server's certificate good: loads, renews and reloads it for as long as it runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

from jobsetpy import aio
from jobsetpy.admission._sources import Source
from jobsetpy.errors import JobSetPyError
from jobsetpy.observability import metrics
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving import tls, x509
from jobsetpy.serving.x509 import KeyPair

RETRY_CAP_S = 10.0


class CertificateKeeper:
    """The certificate of one server.

    Args:
        source: where certificates come from.
        period_s: how often the source is looked at.
        backoff: waits after failures.
        context: gets the certificates; one of its own when absent.
        server: what it is for, in metrics.
        clock: the wall clock tells whether a certificate has ended.

    ``loaded`` is set once a certificate is served; ``complete`` once the first renewal succeeded
    as well, so that the API server trusts it.
    """

    def __init__(
        self,
        source: Source,
        *,
        period_s: float,
        backoff: Callable[[], aio.Backoff] = lambda: aio.Backoff(base=0.5, cap=RETRY_CAP_S),
        context: ssl.SSLContext | None = None,
        server: str = "webhooks",
        clock: aio.Clock | None = None,
    ) -> None:
        self.context = context or tls.new_context()
        self.loaded = asyncio.Event()
        self.complete = asyncio.Event()
        self._source = source
        self._period_s = period_s
        self._backoff = backoff()
        self._served: KeyPair | None = None
        self._life: x509.Lifetime | None = None
        self._server = server
        self._clock = clock or aio.LoopClock()
        self._problem = "certificates are not ready yet"
        self._log = get_logger("certificates")

    def problems(self) -> Iterable[str]:
        """Why webhooks cannot be called, or not yet; nothing while they can."""
        if not self.complete.is_set():
            yield self._problem
            return
        ended = self._out_of_time()
        if ended:
            yield ended

    async def run(self) -> None:
        """Until cancelled. Failures are logged and tried again; a certificate once loaded stays."""
        while True:
            try:
                await self._pass()
            except (JobSetPyError, OSError, ValueError) as error:
                self._complain(str(error))
                await asyncio.sleep(self._backoff.next())
                continue
            self._backoff.reset()
            if self.loaded.is_set():
                self.complete.set()
                ended = self._out_of_time()
                if ended:
                    self._complain(ended)
                else:
                    self._problem = ""
            await asyncio.sleep(self._period_s)

    async def _pass(self) -> None:
        # What is there first: a replica that cannot write must still serve what others wrote.
        await self._load()
        if await self._source.renew():
            await self._load()

    async def _load(self) -> None:
        pair = await self._source.serving()
        if pair is None or pair == self._served:
            return
        try:
            tls.load(self.context, pair)
        except ssl.SSLError as error:
            # Renewing repairs what is ours; a folder's files are in the middle of an exchange.
            self._complain(f"the certificate cannot be used: {error}")
            return
        self._served = pair
        self._life = life = x509.lifetime(pair)
        metrics.certificate_ends(self._server, life.ends)
        self.loaded.set()
        self._log.info(
            "serving with a new certificate", server=self._server, ends=life.ends.isoformat()
        )

    def _out_of_time(self) -> str:
        """Why nobody believes the certificate that is served; "" while they do."""
        life, now = self._life, self._clock.now()
        if life is None or life.begins <= now < life.ends:
            return ""
        if now < life.begins:
            return f"the certificate is not valid before {life.begins.isoformat()}"
        return f"the certificate ended at {life.ends.isoformat()}"

    def _complain(self, problem: str) -> None:
        """Once for each different problem."""
        if problem != self._problem:
            self._problem = problem
            self._log.warning("certificates are not as they should be", error=problem)
