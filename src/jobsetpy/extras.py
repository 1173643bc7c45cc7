"""The optional dependencies of the package, and an error that names the one that is missing.

The package itself needs only the agent's dependencies, h11 and msgspec. All others belong to an
extra. Entry points check theirs here, so that the user need not guess from
``No module named 're2'`` which extra to install.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

_RUNTIME: Final = (
    *("aiohttp", "attrs", "cattrs", "kubernetes_asyncio", "prometheus_client", "structlog"),
    *("uvloop", "yaml"),
)
_KUBECTL: Final = ("attrs", "kubernetes_asyncio", "re2", "rich", "yaml")

PROVIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "runtime": _RUNTIME,
    "webhooks": (*_RUNTIME, "cryptography"),
    "kubectl": _KUBECTL,
    "manager": tuple(sorted({*_RUNTIME, *_KUBECTL, "cryptography"})),
}
"""Modules that each extra of ``pyproject.toml`` installs."""


def require(what: str, extra: str, *modules: str) -> None:
    """Check that the libraries of an extra are installed.

    Args:
        what: the component that needs them, for the error.
        extra: name of the extra, one of :data:`PROVIDES`.
        modules: modules that this component needs; all modules of the extra when absent.

    Raises:
        ModuleNotFoundError: one of them is not installed.
    """
    wanted = modules or PROVIDES[extra]
    missing = [name for name in wanted if name not in sys.modules and find_spec(name) is None]
    if missing:
        msg = (
            f"{what} needs {', '.join(missing)}, which the package by itself does not bring: "
            f"pip install 'jobsetpy[{extra}]'"
        )
        raise ModuleNotFoundError(msg, name=missing[0])
