"""The TLS side of the server: one context whose certificate changes while it serves."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence

from jobsetpy.serving.x509 import KeyPair


def new_context(*, tls13_only: bool = False, ciphers: Sequence[str] = ()) -> ssl.SSLContext:
    """A server context that has no certificate yet. It offers HTTP/1.1 only.

    HTTP/2's streams would let one client hold far more requests open than it has connections.

    Args:
        tls13_only: whether TLS 1.2 is refused.
        ciphers: OpenSSL's names of the TLS 1.2 suites to offer; those that this OpenSSL lacks are
            passed over. () leaves the choice to it.

    Raises:
        ValueError: OpenSSL has none of the suites.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls13_only else ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ciphers:
        try:
            context.set_ciphers(":".join(ciphers))
        except ssl.SSLError as error:
            msg = f"the TLS library has none of the cipher suites {', '.join(ciphers)}"
            raise ValueError(msg) from error
    return context


def load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Have new connections served with ``pair``; open ones go on with what they began with.

    The standard library loads certificates from files only. The file is in memory where the
    system has such: the key touches no disk, and a read-only root file system is no obstacle.

    Raises:
        ssl.SSLError: no certificate, no key, or they do not belong together; the context may be
            left with the new certificate and without a key.
    """
    # A mismatch must be found before the context in use is touched.
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for target in (probe, context):
        _load(target, pair)


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
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
