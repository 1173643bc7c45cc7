"""Host, TLS and credentials: kubernetes_asyncio's configuration, kept up to date.

Only the configuration part of kubernetes_asyncio is used, which supports every kind of kubeconfig
and every login method. The package cannot be imported in part: its ``__init__`` loads a module for
each class of the Kubernetes API, 65 MB and over a second. The configuration part is therefore
imported inside an empty package of the same name, which is removed immediately afterwards: a
program that imports kubernetes_asyncio itself, before or later, gets the whole package. urllib3 and
aiohttp, which that part needs for passwords and OpenID only, are loaded on first use.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import ssl
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from jobsetpy.errors import ConnectFailedError

_PACKAGE = "kubernetes_asyncio"


class Login(Protocol):
    """A configuration and its renewal."""

    @property
    def configuration(self) -> Any:
        """``kubernetes_asyncio.client.Configuration``; always the same object."""
        ...

    async def load(self) -> None:
        """Reload everything into the configuration. Raises the exceptions of the loaders."""
        ...

    async def renew(self) -> None:
        """Refresh credentials that expire; cheap. Raises the exceptions of the loaders."""
        ...


class KubeconfigLogin:
    """Login with a kubeconfig file.

    Args:
        path: path of the file, or several, separated as in ``$KUBECONFIG``.
        context: context to use; the first file's current context if ``None``.
        overrides: entries that replace those of the context: ``cluster``, ``user``; and ``token``,
            which replaces the user.
    """

    def __init__(
        self,
        path: str,
        context: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._context = context
        self._overrides = dict(overrides or {})
        self.namespace = ""
        """Namespace of the context; "" if it has none."""
        self._config, configuration_class = kubernetes_configuration()
        self._loader: Any = None
        self.configuration: Any = configuration_class()

    async def load(self) -> None:
        """Read the file and the files named in it; run its exec plugin."""
        if not _any_file(self._path):
            raise FileNotFoundError(self._path)
        merger, name = _merged(self._config, self._path, self._context)
        if self._overrides:
            name = _add_context(merger.config, name, self._overrides)
        self._loader = await self._config.load_kube_config_from_dict(
            merger.config, context=name, client_configuration=self.configuration
        )
        self.namespace = self._loader.current_context["context"].get("namespace") or ""

    async def renew(self) -> None:
        """Refresh token files, OpenID tokens, and credentials of plugins with an expiry."""
        loader = self._loader
        user = loader._user  # noqa: SLF001 - the loader has no public attribute
        if user is None:
            return
        if "exec" in user and not hasattr(loader, "exec_plugin_expiry"):
            return  # valid until the server refuses it
        if "exec" in user or "tokenFile" in user or loader.provider is not None:
            await loader.load_and_set(self.configuration)


class ServiceAccountLogin:
    """Login with the service account of the process's Pod.

    The configuration's own hook reads the token file again every minute.

    Args:
        token_file: path of the token file; the standard one if ``None``.
        ca_file: path of the CA file; the standard one if ``None``.
        environ: environment variables; the process's environment if ``None``.
    """

    def __init__(
        self,
        *,
        token_file: str | None = None,
        ca_file: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        config, configuration_class = kubernetes_configuration()
        self.configuration: Any = configuration_class()
        arguments: dict[str, Any] = {"client_configuration": self.configuration}
        if token_file is not None:
            arguments["token_filename"] = token_file
        if ca_file is not None:
            arguments["cert_filename"] = ca_file
        if environ is not None:
            arguments["environ"] = dict(environ)
        self._load = functools.partial(config.load_incluster_config, **arguments)

    def load_now(self) -> None:
        """Read the files, which are small and local."""
        self._load()

    async def load(self) -> None:
        """Read the files."""
        self._load()

    async def renew(self) -> None:
        """Do nothing: the configuration's hook renews the token."""


def _add_context(config: Any, name: str | None, overrides: dict[str, str]) -> str:
    """Add a context with other entries to a configuration; return its name."""
    context = dict(config["contexts"].get_with_name(name)["context"].value) if name else {}
    context |= overrides
    added = f"{name} with {', '.join(overrides)}"
    if token := context.pop("token", ""):
        context["user"] = added
        config.value["users"].append({"name": added, "user": {"token": token}})
    config["users"].get_with_name(context["user"])  # its absence is an error
    config.value["contexts"].append({"name": added, "context": context})
    return added


def ssl_context(configuration: Any) -> ssl.SSLContext:
    """Return the TLS context of a configuration.

    Raises:
        ConnectFailedError: its files cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as problem:
        raise credentials_error("TLS files", problem) from problem
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def credentials_error(what: str, problem: Exception) -> ConnectFailedError:
    """Return the error for unusable credentials; nothing was sent, so a retry is allowed."""
    return ConnectFailedError(f"cannot use {what}: {type(problem).__name__}: {problem}")


@functools.cache
def kubernetes_configuration() -> tuple[Any, Any]:
    """Return ``kubernetes_asyncio.config`` and ``kubernetes_asyncio.client.Configuration``."""
    if _PACKAGE not in sys.modules:
        try:
            return _import_lean()
        except Exception:  # noqa: BLE001, S110 - another release may be built otherwise
            pass
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    return config, Configuration


def _import_lean() -> tuple[Any, Any]:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(_PACKAGE)
    places = list(spec.submodule_search_locations)
    root = types.ModuleType(_PACKAGE)
    root.__path__ = places
    client: Any = types.ModuleType(f"{_PACKAGE}.client")
    client.__path__ = [str(Path(place) / "client") for place in places]
    client.ApiClient = object  # named by an annotation only
    late = [_loaded_when_used(name) for name in ("aiohttp", "urllib3")]
    for each in late:
        sys.modules.setdefault(each.__name__, each)
    sys.modules[root.__name__] = root
    sys.modules[client.__name__] = client
    try:
        made = importlib.import_module(f"{_PACKAGE}.client.configuration").Configuration
        client.Configuration = made
        return importlib.import_module(f"{_PACKAGE}.config"), made
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        for each in late:
            if sys.modules[each.__name__] is each:
                del sys.modules[each.__name__]


def _loaded_when_used(name: str) -> types.ModuleType:
    """Return a placeholder of a module that imports it at the first access to an attribute."""
    stands: Any = types.ModuleType(name)

    def use(attribute: str) -> Any:
        found = importlib.import_module(name)
        # It stands in sys.modules as long as annotations are evaluated, which need any class.
        return object if found is stands else getattr(found, attribute)

    stands.__getattr__ = use
    module: types.ModuleType = stands
    return module


def context_namespace(path: str, context: str | None = None) -> str:
    """Return the namespace of a kubeconfig's context, as kubectl takes it; "" without a context.

    Args:
        path: path of the file, or several, separated as in ``$KUBECONFIG``.
        context: context to use; the first file's current context if ``None``.
    """
    merger, name = _merged(kubernetes_configuration()[0], path, context)
    if not name:
        return ""
    found = merger.config["contexts"].get_with_name(name)["context"].value
    return found.get("namespace") or "default"


def _merged(config: Any, path: str, context: str | None) -> tuple[Any, str | None]:
    """Return the merged files, and the name of the context."""
    merger = config.kube_config.KubeConfigMerger(path)
    # The merger takes the last file's; kubectl takes that of the first file that has one.
    current = (each.get("current-context") for each in merger.config_files.values())
    return merger, context or next(filter(None, current), None)


def _any_file(paths: str) -> bool:
    """Return whether one of the files exists: like kubectl, missing files are skipped."""
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)
