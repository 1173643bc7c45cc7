"""Kubernetes for asyncio: typed verbs, one error tree, deadlines everywhere.

``connect()`` gives a ``KubeClient`` configured as ``kubectl`` would be. The parts can be used
alone: ``KubeClient`` works on any ``Transport``, and there are two of those.

Names are loaded when first asked for, so that the agent, which needs the slim transport only, does
not pay for the other one at each of its restarts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobsetpy.client._connect import connect
    from jobsetpy.client._errors import error_from_response, error_from_status
    from jobsetpy.client._fence import WriteFence
    from jobsetpy.client._kube import KubeClient, RequestObserver
    from jobsetpy.client._protocol import (
        ByteStream,
        Client,
        HttpRequest,
        HttpResponse,
        Page,
        Transport,
        WatchFrame,
        WatchStream,
    )
    from jobsetpy.client._ratelimit import RateLimiter
    from jobsetpy.client._slim import SlimTransport
    from jobsetpy.client._transport import KubernetesAsyncioTransport

_HOME = {
    "ByteStream": "_protocol",
    "Client": "_protocol",
    "HttpRequest": "_protocol",
    "HttpResponse": "_protocol",
    "KubeClient": "_kube",
    "KubernetesAsyncioTransport": "_transport",
    "Page": "_protocol",
    "RateLimiter": "_ratelimit",
    "RequestObserver": "_kube",
    "SlimTransport": "_slim",
    "Transport": "_protocol",
    "WatchFrame": "_protocol",
    "WatchStream": "_protocol",
    "WriteFence": "_fence",
    "connect": "_connect",
    "error_from_response": "_errors",
    "error_from_status": "_errors",
}

__all__ = [
    "ByteStream",
    "Client",
    "HttpRequest",
    "HttpResponse",
    "KubeClient",
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
    "error_from_response",
    "error_from_status",
]


def __getattr__(name: str) -> Any:
    """Load the module a public name lives in (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return __all__
