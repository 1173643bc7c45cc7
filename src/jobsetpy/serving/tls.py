"""TLS contexts of servers. A change of certificate or authorities creates a new one."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:  # cryptography is 10 MB that a server without TLS does not need
    from jobsetpy.serving.x509 import KeyPair


@attrs.frozen
class TlsMaterial:
    """Input of a context: certificate, key, and the authorities of clients, all PEM.

    With ``None`` for the authorities any client is allowed.
    """

    pair: KeyPair
    client_authorities: bytes | None = None


@attrs.frozen(kw_only=True)
class TlsPolicy:
    """Protocols that a server accepts.

    Args:
        tls13_only: refuse TLS 1.2.
        ciphers: OpenSSL's names of the TLS 1.2 suites to offer; those that this OpenSSL does not
            support are skipped. () leaves the choice to it.
    """

    tls13_only: bool = False
    ciphers: tuple[str, ...] = ()

    def new_context(self, material: TlsMaterial | None = None) -> ssl.SSLContext:
        """Return a server's context; without ``material`` handshakes fail.

        Sessions of clients that must present a certificate are not resumed: a resumed session would
        not verify it.

        Raises:
            ssl.SSLError: the material is not usable.
            ValueError: the same, or OpenSSL supports none of the ciphers.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = (
            ssl.TLSVersion.TLSv1_3 if self.tls13_only else ssl.TLSVersion.TLSv1_2
        )
        context.set_alpn_protocols(["http/1.1"])
        if self.ciphers:
            try:
                context.set_ciphers(":".join(self.ciphers))
            except ssl.SSLError as error:
                msg = f"the TLS library has none of the cipher suites {', '.join(self.ciphers)}"
                raise ValueError(msg) from error
        if material is None:
            return context
        if material.client_authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
            context.load_verify_locations(cadata=material.client_authorities.decode("ascii"))
        _load(context, material.pair)
        return context


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name of a certificate as given by the standard library; "" if none."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Load ``pair`` into ``context``.

    The standard library loads certificates from files only. The file is in memory if the system
    supports it: the key touches no disk, and a read-only root file system is no obstacle.
    """
    content = pair.certificate.rstrip() + b"\n" + pair.key
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        context.load_cert_chain(file.name)
