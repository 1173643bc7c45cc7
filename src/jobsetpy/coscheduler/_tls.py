"""Mutual TLS of the extender: its certificate, and who may call it, as both change.

Whoever can call the extender can have pods bound, so a client needs a certificate of a given
authority and with a given name. A context's authorities cannot be taken back once they are loaded;
hence each change makes a new one, and the server listens with that from then on.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from jobsetpy import aio
from jobsetpy.errors import JobSetPyError
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving import tls, x509
from jobsetpy.serving.secrets import CA_CERT, TLS_CERT, TLS_KEY
from jobsetpy.serving.x509 import KeyPair

RETRY_CAP_S: Final = 10.0


@attrs.frozen
class Material:
    """What a context is made of: certificate, key, and the authorities of clients, all PEM."""

    pair: KeyPair
    authorities: bytes


class Source(Protocol):
    """Where the material comes from."""

    async def material(self) -> Material | None:
        """What is there now; ``None`` if it is not complete yet."""
        ...

    async def renew(self) -> bool:
        """Do what is needed for there to be good material; whether it may have changed."""
        ...


class Files:
    """Files that others write, such as cert-manager by way of a mounted Secret.

    Args:
        folder: with ``tls.crt`` and ``tls.key``.
        authorities: of clients; ``ca.crt`` of the folder when absent.
    """

    def __init__(self, folder: Path, authorities: Path | None = None) -> None:
        self._folder = folder
        self._authorities = authorities or folder / CA_CERT

    async def material(self) -> Material:
        """What the files hold.

        Raises:
            OSError: a file cannot be read.
        """
        return await asyncio.to_thread(self._read)

    async def renew(self) -> bool:
        """Nothing: that is the business of whoever writes the files."""
        return False

    def _read(self) -> Material:
        certificate, key = (self._folder / name for name in (TLS_CERT, TLS_KEY))
        pair = KeyPair(certificate.read_bytes(), key.read_bytes())
        return Material(pair, self._authorities.read_bytes())


def server_context(material: Material) -> ssl.SSLContext:
    """TLS that lets in only clients with a certificate of the authorities; HTTP/2 is offered.

    Sessions are not resumed: that would let in a client without a look at its certificate.

    Raises:
        ssl.SSLError: the material cannot be used.
        ValueError: the same.
    """
    context = tls.new_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_verify_locations(cadata=material.authorities.decode("ascii"))
    tls.load(context, material.pair)
    return context


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Of a certificate as the standard library shows it; "" if there is none."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""


class Credentials:
    """Keeps the server's context in line with its source.

    Args:
        source: of the material.
        period_s: how often it is looked at.
        clock: to tell whether a certificate has ended.
        use: has the server listen with another context.
    """

    def __init__(
        self,
        source: Source,
        *,
        period_s: float,
        clock: aio.Clock,
        use: Callable[[ssl.SSLContext], Awaitable[None]],
    ) -> None:
        self._source = source
        self._period_s = period_s
        self._clock = clock
        self._use = use
        self._material: Material | None = None
        self._ends: datetime | None = None
        self._problem = "there is no certificate yet"
        self._log = get_logger("certificates")

    def problems(self) -> Iterable[str]:
        """Why clients cannot call; nothing if they can."""
        if self._material is None:
            yield self._problem
        elif self._ends is not None and self._ends <= self._clock.now():
            yield f"the certificate ended at {self._ends:%Y-%m-%d %H:%M:%S} UTC"

    async def run(self) -> None:
        """Until cancelled. What cannot be used is logged, and what was used before stays."""
        backoff = aio.Backoff(base=0.5, cap=RETRY_CAP_S)
        while True:
            try:
                await self._pass()
            except (JobSetPyError, OSError, ValueError) as error:  # SSLError is an OSError
                self._complain(str(error))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            await asyncio.sleep(self._period_s if self._material is not None else 0.5)

    async def _pass(self) -> None:
        # What is there first: a replica that cannot write must still serve what others wrote.
        await self._load()
        if await self._source.renew():
            await self._load()

    async def _load(self) -> None:
        material = await self._source.material()
        if material is None or material == self._material:
            return
        context = server_context(material)
        ends = x509.lifetime(material.pair).ends
        await self._use(context)
        self._material, self._ends, self._problem = material, ends, ""
        self._log.info("serving with a new certificate", until=ends.isoformat())

    def _complain(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._log.warning("certificates are not as they should be", error=problem)
