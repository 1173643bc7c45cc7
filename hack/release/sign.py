"""Signatures of releases with the caller's own key, in the form that openssl and cosign verify.

EC and RSA (PKCS #1) sign the SHA-256 of the text, Ed25519 the text itself; the signature is in
base64, as ``cosign verify-blob --signature`` takes it.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

KINDS = (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey, ed25519.Ed25519PrivateKey)
PASSWORD = "SIGN_KEY_PASSWORD"


@dataclass(frozen=True)
class Signer:
    """A private key that can sign."""

    key: Any

    @classmethod
    def of(cls, path: Path) -> Signer:
        """Read a private key from a file.

        Raises:
            ValueError: the file has no key, an unsupported kind of key, or another passphrase.
        """
        password = os.environ.get(PASSWORD)
        try:
            key = load_pem_private_key(path.read_bytes(), password.encode() if password else None)
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: no private key in PEM that {PASSWORD} opens: {error}"
            ) from error
        if isinstance(key, KINDS):
            return cls(key)
        raise ValueError(f"{path}: {type(key).__name__}; use EC, RSA or Ed25519")

    def signature(self, data: bytes) -> str:
        """Return the signature of ``data`` in base64, one line."""
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            made = self.key.sign(data, ec.ECDSA(SHA256()))
        elif isinstance(self.key, rsa.RSAPrivateKey):
            made = self.key.sign(data, padding.PKCS1v15(), SHA256())
        else:
            made = self.key.sign(data)
        return base64.b64encode(made).decode() + "\n"
