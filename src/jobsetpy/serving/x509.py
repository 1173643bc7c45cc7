"""Certificates: a small authority and the certificates it issues, as pure functions of the time.

Private keys are RSA 2048 in PKCS#1 (the form that other programs sharing the Secret read).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from jobsetpy.extras import require

require("serving over TLS", "webhooks", "attrs", "cryptography")

import attrs
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_NAME: Final = "jobsetpy"
"""Default name of an authority."""
AUTHORITY_LIFETIME = timedelta(days=3650)
SERVING_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=90)
"""Time before its expiry at which a certificate is replaced."""
CLOCK_SKEW = timedelta(hours=1)
"""Time by which certificates are backdated, for API servers whose clock is behind."""
_PUBLIC_FORM: Final = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
MAX_AUTHORITIES = 3
"""Maximum number of authorities in a bundle: the current one and those replicas may still use."""

_Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@attrs.frozen
class KeyPair:
    """Certificate and its private key, both PEM.

    ``certificate`` may hold more than one certificate; the first belongs to the key.
    """

    certificate: bytes
    key: bytes = attrs.field(repr=False)


@attrs.frozen
class Lifetime:
    """Validity period of a certificate."""

    begins: datetime
    ends: datetime


def lifetime(pair: KeyPair) -> Lifetime:
    """Return the validity period of the certificate that belongs to the key.

    Raises:
        ValueError: the PEM cannot be read.
    """
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    return Lifetime(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def new_authority(now: datetime, name: str = AUTHORITY_NAME) -> KeyPair:
    """Create a self-signed certificate authority; takes a tenth of a second of CPU.

    Args:
        now: start of its validity.
        name: organization of its subject; the common name is the same with ``-ca``.
    """
    key = _new_key()
    names = {NameOID.COMMON_NAME: f"{name}-ca", NameOID.ORGANIZATION_NAME: name}
    subject = x509.Name([x509.NameAttribute(*each) for each in names.items()])
    usage = _usage(sign_certificates=True)
    certificate = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def new_serving(
    authority: KeyPair, names: Sequence[str], now: datetime, *, elliptic: bool = False
) -> KeyPair:
    """Issue a server certificate for ``names`` (DNS names or IP addresses).

    Args:
        authority: issuer.
        names: at least one.
        now: the current time.
        elliptic: use a key on the curve P-256: handshakes cost a tenth. Not suitable where cipher
            suites may be restricted to those for RSA.

    Raises:
        ValueError: the authority's PEM cannot be read.
    """
    alternative = x509.SubjectAlternativeName([_name(n) for n in names])
    key = _new_elliptic_key() if elliptic else _new_key()
    return _issued(authority, names[0], ExtendedKeyUsageOID.SERVER_AUTH, now, key, alternative)


def new_client(authority: KeyPair, name: str, now: datetime) -> KeyPair:
    """Issue a client certificate with the common name ``name``.

    Its key is on the curve P-256.

    Raises:
        ValueError: the authority's PEM cannot be read.
    """
    return _issued(authority, name, ExtendedKeyUsageOID.CLIENT_AUTH, now, _new_elliptic_key())


def _issued(
    authority: KeyPair,
    name: str,
    usage: x509.ObjectIdentifier,
    now: datetime,
    key: _Key,
    *more: x509.ExtensionType,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = _load_key(authority.key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now, SERVING_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            _usage(sign_certificates=False, encipher_keys=isinstance(key, rsa.RSAPrivateKey)),
            critical=True,
        )
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def authority_usable(pair: KeyPair, now: datetime) -> bool:
    """Return whether the authority can issue certificates and will not expire soon."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        return basic.ca and _matches(certificate, pair.key) and _lasts(certificate, now)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False


def serving_usable(pair: KeyPair, authority: bytes, names: Sequence[str], now: datetime) -> bool:
    """Return whether the pair serves ``names``, is issued by ``authority`` and lasts."""

    def serves(certificate: x509.Certificate) -> bool:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {_name(name) for name in names} <= set(found)

    return _usable(pair, authority, now, serves)


def client_usable(pair: KeyPair, authority: bytes, name: str, now: datetime) -> bool:
    """Return whether the pair is for client ``name``, is issued by ``authority`` and lasts."""

    def is_named(certificate: x509.Certificate) -> bool:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return [each.value for each in names] == [name[:64]]

    return _usable(pair, authority, now, is_named)


def _usable(
    pair: KeyPair, authority: bytes, now: datetime, fits: Callable[[x509.Certificate], bool]
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        return fits(certificate) and _matches(certificate, pair.key) and _lasts(certificate, now)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False


def bundle(new: bytes, old: bytes, now: datetime) -> bytes:
    """Return PEM of ``new`` followed by the authorities in ``old`` that are still valid, each once.

    While replicas change to a new authority, the API server must trust both.
    """
    kept = x509.load_pem_x509_certificates(new)[:1]
    try:
        earlier = x509.load_pem_x509_certificates(old)
    except ValueError:
        earlier = []
    for certificate in earlier:
        if certificate not in kept and certificate.not_valid_after_utc > now:
            kept.append(certificate)
    return b"".join(item.public_bytes(Encoding.PEM) for item in kept[:MAX_AUTHORITIES])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _usage(*, sign_certificates: bool, encipher_keys: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=encipher_keys,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _new_elliptic_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _load_key(pem: bytes) -> rsa.RSAPrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, rsa.RSAPrivateKey):
        msg = "the authority's private key is not RSA"
        raise ValueError(msg)  # noqa: TRY004 - the stored value is wrong, not its type
    return key


def _pair(certificate: x509.Certificate, key: _Key) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
    )


def _matches(certificate: x509.Certificate, key: bytes) -> bool:
    return _public_part(key) == certificate.public_key().public_bytes(*_PUBLIC_FORM)


# Loading checks an RSA key for soundness, which takes about 20 ms. Stored keys are checked
# repeatedly on the loop that also answers the API server, and hardly ever change: authority and
# serving key, and the ones that replace them.
@lru_cache(maxsize=4)
def _public_part(key: bytes) -> bytes:
    public = load_pem_private_key(key, password=None).public_key()
    return public.public_bytes(*_PUBLIC_FORM)


def _lasts(certificate: x509.Certificate, now: datetime) -> bool:
    begins = certificate.not_valid_before_utc
    return begins <= now and now + RENEW_BEFORE < certificate.not_valid_after_utc
