"""Kubernetes for asyncio: typed verbs, one error tree, deadlines everywhere.

``connect()`` gives a ``Client`` configured as ``kubectl`` would be. The parts can be used alone:
``Client`` works on any ``Transport``, and there are two of those.

What needs kubernetes_asyncio and aiohttp is loaded when first asked for, so that the agent, which
needs the slim transport only, does not pay for them at each of its restarts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jobsetpy.client._client import Client
from jobsetpy.client._errors import error_from_response, error_from_status
from jobsetpy.client._fence import WriteFence
from jobsetpy.client._frames import WatchFrame, WatchStream
from jobsetpy.client._models import Page, decoder_of
from jobsetpy.client._ratelimit import RateLimiter
from jobsetpy.client._send import RequestObserver
from jobsetpy.client._slim import SlimTransport
from jobsetpy.client._transport import ByteStream, HttpRequest, HttpResponse, Transport

if TYPE_CHECKING:
    from jobsetpy.client._aiohttp import KubernetesAsyncioTransport
    from jobsetpy.client._connect import connect

__all__ = [
    "ByteStream",
    "Client",
    "HttpRequest",
    "HttpResponse",
    "KubernetesAsyncioTransport",
    "Page",
    "RateLimiter",
    "RequestObserver",
    "SlimTransport",
    "Transport",
    "WatchFrame",
    "WatchStream",
    "WriteFence",
    "connect",
    "decoder_of",
    "error_from_response",
    "error_from_status",
]


def __getattr__(name: str) -> Any:
    """Load what needs kubernetes_asyncio (PEP 562)."""
    home = {"connect": "_connect", "KubernetesAsyncioTransport": "_aiohttp"}.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return __all__
