"""A real client of the fake server: the package's own, on its slim transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobsetpy.client import KubeClient, SlimTransport

if TYPE_CHECKING:
    from jobsetpy.testing._server import FakeApiServer


def make_client(server: FakeApiServer, **settings: Any) -> KubeClient:
    """A client without rate limit unless ``settings`` say otherwise.

    Args:
        server: a running server; TLS needs ``ca_file`` or ``cadata`` in the settings.
        **settings: for ``KubeClient``; ``ca_file``, ``cadata``, ``token``, ``token_file`` and
            ``user_agent`` go to the transport.
    """
    names = {"ca_file", "cadata", "token", "token_file", "server_hostname"}
    transport_settings = {name: settings.pop(name) for name in names & settings.keys()}
    if server.token and not {"token", "token_file"} & transport_settings.keys():
        transport_settings["token"] = server.token
    return KubeClient(SlimTransport(server.url, **transport_settings), **settings)
