"""``connect()``: finds the cluster in the same way as ``kubectl``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jobsetpy.client._aiohttp import AiohttpTransport
from jobsetpy.client._client import DEFAULT_BURST, DEFAULT_QPS, Client
from jobsetpy.client._http import USER_AGENT
from jobsetpy.client._login import context_namespace
from jobsetpy.client._send import RequestObserver
from jobsetpy.errors import ConnectFailedError


async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    qps: float = DEFAULT_QPS,
    burst: int = DEFAULT_BURST,
    timeout_s: float = 30.0,
    user_agent: str = USER_AGENT,
    observer: RequestObserver | None = None,
    environ: Mapping[str, str] | None = None,
) -> Client:
    """Return a client for the cluster of the configuration.

    Uses the first of these that exists: ``kubeconfig``, the files of ``$KUBECONFIG``, the service
    account of the process's Pod, ``~/.kube/config``. With a ``context``, only files are used.

    Nothing is sent: an unreachable server is detected at the first request.

    Args:
        kubeconfig: path of a kubeconfig file.
        context: context to use instead of the file's current one.
        qps: client-side limit in requests per second; 0 for no limit.
        burst: maximum number of requests in a burst.
        timeout_s: default deadline of a call, in seconds.
        user_agent: the User-Agent header; its part before the slash is the field manager of writes
            without an owner.
        observer: receives every request, for metrics.
        environ: environment variables; the process's environment if ``None``.

    Raises:
        ConnectFailedError: there is no configuration, or it cannot be used.
    """
    transport = await _transport(
        kubeconfig, context, user_agent, os.environ if environ is None else environ
    )
    return Client(transport, qps=qps, burst=burst, timeout_s=timeout_s, observer=observer)


def _home_kubeconfig(environ: Mapping[str, str]) -> Path | None:
    path = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    return path if path.is_file() else None


def namespace_of_context(
    kubeconfig: str | None, context: str | None, environ: Mapping[str, str]
) -> str:
    """Return the namespace of the context that ``connect`` would use; "" if it uses no file."""
    path = kubeconfig or environ.get("KUBECONFIG") or _home_kubeconfig(environ)
    try:
        return context_namespace(str(path), context) if path else ""
    except Exception:  # noqa: BLE001 - whatever is wrong with the file, connecting reports it
        return ""


async def _transport(
    kubeconfig: str | None, context: str | None, user_agent: str, environ: Mapping[str, str]
) -> AiohttpTransport:
    path = kubeconfig or environ.get("KUBECONFIG")
    if path:
        return await AiohttpTransport.from_kubeconfig(path, context=context, user_agent=user_agent)
    if context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return AiohttpTransport.in_cluster(environ=environ, user_agent=user_agent)
    home = _home_kubeconfig(environ)
    if home is not None:
        return await AiohttpTransport.from_kubeconfig(home, context=context, user_agent=user_agent)
    msg = "no cluster: no kubeconfig given, $KUBECONFIG unset, not in a Pod, no ~/.kube/config"
    raise ConnectFailedError(msg)
