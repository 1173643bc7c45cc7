"""Cluster, user and namespace of a command, from the same files as those of kubectl.

The client's login reads them. Requests go through the agent's transport, which is imported
faster; commands that run for long, and proxies, use that of the manager, which renews credentials
that expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from jobsetpy.kubectl.errors import CommandError

if TYPE_CHECKING:
    from jobsetpy.client import Transport

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_AGENT: Final = "kubectl-jobset"


class Options(NamedTuple):
    """The flags that kubectl has, too; "" where none was given."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    token: str = ""


class Target(NamedTuple):
    """Destination of requests.

    Args:
        transport: transport to the API server.
        server: URL of the server, for messages.
        namespace: namespace of the command.
    """

    transport: Transport
    server: str
    namespace: str


async def target(options: Options, environ: Mapping[str, str], *, long: bool = False) -> Target:
    """Return the cluster that the user has selected.

    Args:
        options: flags of the command.
        environ: environment variables.
        long: True for a command that may outlive its credentials.

    Raises:
        CommandError: there is none, or it cannot be used.
    """
    path = _path(options, environ)
    if path is None:
        return _without_file(options, environ)
    from jobsetpy.client._login import KubeconfigLogin, ssl_context

    overrides = {key: value for key, value in options._asdict().items() if key in _PARTS and value}
    try:
        login = KubeconfigLogin(path, options.context or None, overrides)
        await login.load()
        config = login.configuration
        if options.server:
            config.host = options.server
        server, namespace = config.host.rstrip("/"), options.namespace or login.namespace
        if long or config.proxy:
            from jobsetpy.client import AiohttpTransport

            made: Transport = AiohttpTransport(login, user_agent=_AGENT)
            return Target(made, server, namespace or "default")
        from jobsetpy.client import H11Transport

        scheme, _, token = config.api_key.get("BearerToken", "").strip().partition(" ")
        if scheme == "Basic":
            raise CommandError("error: user names and passwords are not supported: use a token")
        made = H11Transport(
            server,
            tls=ssl_context(config) if server.startswith("https:") else None,
            token=token or None,
            server_hostname=config.tls_server_name,
            user_agent=_AGENT,
        )
    except CommandError:
        raise
    except Exception as problem:  # loaders and plugins raise anything
        raise CommandError(f"error: kubeconfig {path} cannot be used: {problem}") from problem
    return Target(made, server, namespace or "default")


_PARTS: Final = frozenset({"cluster", "user", "token"})


def _path(options: Options, environ: Mapping[str, str]) -> str | None:
    """Return the files, as in ``$KUBECONFIG``; ``None`` if there is none."""
    if options.kubeconfig and not Path(options.kubeconfig).is_file():
        raise CommandError(f"error: stat {options.kubeconfig}: no such file or directory")
    home = Path(environ.get("HOME") or "~").expanduser()
    path = options.kubeconfig or environ.get("KUBECONFIG") or str(home / ".kube" / "config")
    return path if any(each and Path(each).is_file() for each in path.split(":")) else None


def _without_file(options: Options, environ: Mapping[str, str]) -> Target:
    from jobsetpy.client import H11Transport

    if options.server:
        token = options.token or None
        made = H11Transport(options.server.rstrip("/"), token=token, user_agent=_AGENT)
        return Target(made, options.server, options.namespace or "default")
    if not environ.get("KUBERNETES_SERVICE_HOST") or options.context:
        raise CommandError(
            "error: no cluster: no kubeconfig is there (--kubeconfig, $KUBECONFIG, ~/.kube/config) "
            "and this is not a Pod"
        )
    file = SERVICE_ACCOUNT / "namespace"
    own = file.read_text().strip() if file.is_file() else "default"
    transport = H11Transport.in_cluster(user_agent=_AGENT)
    return Target(transport, "https://kubernetes.default", options.namespace or own)
