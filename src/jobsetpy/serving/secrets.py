"""Certificates in Secrets: the names of their parts, and how they are read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource

CA_CERT, CA_KEY, TLS_CERT, TLS_KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


@resource("", "v1", "Secret", "secrets")
@wire
class Secret:
    """A Secret; values are base64."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None


def decoded(secret: Secret) -> dict[str, bytes]:
    """The Secret's values; one that is no base64 counts as missing."""
    out = {}
    for name, value in (secret.data or {}).items():
        try:
            out[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            continue
    return out
