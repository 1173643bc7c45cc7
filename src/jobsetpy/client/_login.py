"""Host, TLS and credentials: kubernetes_asyncio's configuration, kept up to date.

Only the configuration part of kubernetes_asyncio is used, which supports every kind of kubeconfig
and every login method. The package cannot be imported in part: its ``__init__`` loads a module for
each class of the Kubernetes API, 65 MB and over a second. The configuration part is therefore
imported inside an empty package of the same name, which is removed immediately afterwards: a
program that imports kubernetes_asyncio itself, before or later, gets the whole package. urllib3,
which that part needs for passwords only, is loaded on first use.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
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
        context: context to use; the file's current context if ``None``.
    """

    def __init__(self, path: str, context: str | None = None) -> None:
        self._path = path
        self._context = context
        self._config, configuration_class = kubernetes_configuration()
        self._loader: Any = None
        self.configuration: Any = configuration_class()

    async def load(self) -> None:
        """Read the file and the files named in it; run its exec plugin."""
        if not _any_file(self._path):
            raise FileNotFoundError(self._path)
        self._loader = await self._config.load_kube_config(
            config_file=self._path,
            context=self._context,
            client_configuration=self.configuration,
            persist_config=False,
        )

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
    passwords = _loaded_when_used("urllib3")
    sys.modules.setdefault(passwords.__name__, passwords)
    sys.modules[root.__name__] = root
    sys.modules[client.__name__] = client
    try:
        made = importlib.import_module(f"{_PACKAGE}.client.configuration").Configuration
        client.Configuration = made
        return importlib.import_module(f"{_PACKAGE}.config"), made
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]:
            del sys.modules[name]
        if sys.modules[passwords.__name__] is passwords:
            del sys.modules[passwords.__name__]


def _loaded_when_used(name: str) -> types.ModuleType:
    """Return a placeholder of a module that imports it at the first access to an attribute."""
    stands: Any = types.ModuleType(name)
    stands.__getattr__ = lambda attribute: getattr(importlib.import_module(name), attribute)
    module: types.ModuleType = stands
    return module


def _any_file(paths: str) -> bool:
    """Return whether one of the files exists: like kubectl, missing files are skipped."""
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)
