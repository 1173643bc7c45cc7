"""Cluster, user and namespace of a command, read from the same files as by kubectl.

The library's own ``client.connect`` leaves this to kubernetes_asyncio, whose import alone takes
longer than a plugin may. What only that one can do (proxies, auth providers) is left to it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jobsetpy.kubectl.errors import CommandError

if TYPE_CHECKING:
    import ssl

    from jobsetpy.client import Transport

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_TIMEOUT_S: Final = 60.0


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


def target(options: Options, environ: Mapping[str, str]) -> Target:
    """Return the cluster that the user has selected.

    Raises:
        CommandError: there is none, or it cannot be used.
    """
    config = _load(options.kubeconfig, environ)
    if not config and not options.server:
        inside = environ.get("KUBERNETES_SERVICE_HOST")
        if inside and not options.context:
            return _inside(options)
        raise CommandError(
            "error: no cluster: no kubeconfig is there (--kubeconfig, $KUBECONFIG, ~/.kube/config) "
            "and this is not a Pod"
        )
    name = options.context or config.get("current-context") or ""
    context = _part(config, "context", name)
    cluster = _part(config, "cluster", options.cluster or context.get("cluster"))
    user = _part(config, "user", options.user or context.get("user"))
    namespace = options.namespace or context.get("namespace") or "default"
    server = options.server or cluster.get("server") or ""
    if not server:
        raise CommandError(f'error: context "{name}" names no server')
    try:
        return Target(_transport(server, cluster, user, options), server, namespace)
    except (OSError, ValueError) as problem:
        raise CommandError(f'error: context "{name}" cannot be used: {problem}') from problem


def contexts(options: Options, environ: Mapping[str, str]) -> list[str]:
    """Names of all contexts, for completion."""
    return [
        str(each.get("name")) for each in _load(options.kubeconfig, environ).get("contexts", ())
    ]


def _inside(options: Options) -> Target:
    from jobsetpy.client import H11Transport

    file = SERVICE_ACCOUNT / "namespace"
    own = file.read_text().strip() if file.is_file() else "default"
    transport = H11Transport.in_cluster()
    return Target(transport, "https://kubernetes.default", options.namespace or own)


def _load(flag: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Merge all files; of entries with the same name the first counts, as in kubectl."""
    if flag:
        if not Path(flag).is_file():
            raise CommandError(f"error: stat {flag}: no such file or directory")
        paths = [flag]
    elif environ.get("KUBECONFIG"):
        paths = [path for path in environ["KUBECONFIG"].split(os.pathsep) if path]
    else:
        paths = [str(Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config")]
    merged: dict[str, Any] = {}
    for path in paths:
        if not Path(path).is_file():
            continue
        for key, value in _read(Path(path)).items():
            if key in {"clusters", "contexts", "users"}:
                merged.setdefault(key, []).extend(value or ())
            elif value:
                merged.setdefault(key, value)
    return merged


def _read(path: Path) -> dict[str, Any]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        config = yaml.load(path.read_text(), loader)  # noqa: S506 - a safe loader, perhaps in C
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise CommandError(f"error: error loading config file {path}: {problem}") from problem
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise CommandError(f"error: error loading config file {path}: it is no kubeconfig")
    folder = path.resolve().parent
    for kind, part in (("clusters", "cluster"), ("users", "user")):
        for each in config.get(kind) or ():
            values = each.get(part) or {}
            for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                if values.get(key):
                    values[key] = str(folder / values[key])
    return config


def _part(config: Mapping[str, Any], part: str, name: str | None) -> dict[str, Any]:
    """Return an entry of the configuration's clusters, contexts or users; {} without a name."""
    if not name:
        return {}
    for each in config.get(f"{part}s") or ():
        if each.get("name") == name:
            return each.get(part) or {}
    raise CommandError(f'error: {part} "{name}" does not exist')


def _transport(
    server: str, cluster: Mapping[str, Any], user: Mapping[str, Any], options: Options
) -> Transport:
    from jobsetpy.client import H11Transport

    for key, where in (("proxy-url", cluster), ("auth-provider", user), ("username", user)):
        if where.get(key):
            raise CommandError(
                f"error: the kubeconfig's {key} is not supported by this plugin; use a context "
                "with a token, a client certificate or an exec plugin"
            )
    if options.token:
        user = {"token": options.token}
    if "exec" in user:
        user = {**user, **_run_plugin(user["exec"], server, cluster)}
    return H11Transport(
        server.rstrip("/"),
        tls=_tls(cluster, user) if server.startswith("https:") else None,
        token=user.get("token"),
        token_file=None if user.get("token") else user.get("tokenFile"),
        server_hostname=cluster.get("tls-server-name"),
        user_agent="kubectl-jobset",
    )


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    import ssl

    # Text around the certificates may have other characters, which ssl refuses.
    authorities = _file_or_data(cluster, "certificate-authority").decode("ascii", "ignore")
    context = ssl.create_default_context(cadata=authorities or None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := _file_or_data(user, "client-certificate"):
        import tempfile

        key = _file_or_data(user, "client-key")
        with tempfile.TemporaryDirectory() as folder:  # ssl reads files only
            pem = Path(folder) / "pem"
            pem.touch(mode=0o600)
            pem.write_bytes(certificate + b"\n" + key)
            context.load_cert_chain(pem)
    return context


def _file_or_data(entry: Mapping[str, Any], key: str) -> bytes:
    """Return the content of a file, or of the field that has it as base64; b"" without either."""
    data = entry.get(f"{key}-data")
    if not data:
        return Path(entry[key]).read_bytes() if entry.get(key) else b""
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except binascii.Error as problem:
        raise CommandError(f"error: {key}-data is no base64: {problem}") from problem


def _run_plugin(
    plugin: Mapping[str, Any], server: str, cluster: Mapping[str, Any]
) -> dict[str, str]:
    """Credentials of an exec plugin (client.authentication.k8s.io)."""
    import subprocess

    version = plugin.get("apiVersion") or "client.authentication.k8s.io/v1"
    info: dict[str, Any] = {
        "apiVersion": version,
        "kind": "ExecCredential",
        "spec": {"interactive": os.isatty(0)},
    }
    if plugin.get("provideClusterInfo"):
        info["spec"]["cluster"] = {"server": server, **{k: v for k, v in cluster.items() if v}}
    command = [str(plugin.get("command")), *(str(word) for word in plugin.get("args") or ())]
    extra = {each["name"]: each["value"] for each in plugin.get("env") or ()}
    environ = {**os.environ, **extra, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    try:
        done = subprocess.run(  # noqa: S603 - what the user's own kubeconfig says
            command, env=environ, stdout=subprocess.PIPE, timeout=_EXEC_TIMEOUT_S, check=True
        )
        status = json.loads(done.stdout)["status"]
    except FileNotFoundError:
        hint = plugin.get("installHint") or ""
        text = f"error: exec: executable {command[0]} not found"
        raise CommandError(f"{text}\n{hint}" if hint else text) from None
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as problem:
        raise CommandError(f"error: getting credentials: exec: {problem}") from problem
    pem = {"client-certificate": "clientCertificateData", "client-key": "clientKeyData"}
    out = {
        f"{ours}-data": base64.b64encode(status[theirs].encode()).decode()
        for ours, theirs in pem.items()
        if status.get(theirs)
    }
    return out | ({"token": status["token"]} if status.get("token") else {})
