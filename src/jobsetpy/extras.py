"""The optional dependencies of the package, and an error that names the one that is missing.

The package by itself needs what the agent needs: h11 and msgspec. All else comes with an extra.
Parts that are imported or started first ask for theirs here, so that nobody has to guess from
``No module named 're2'`` what to install.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

_RUNTIME: Final = (
    *("attrs", "cattrs", "kubernetes_asyncio", "prometheus_client", "structlog", "uvloop", "yaml"),
)
_KUBECTL: Final = ("attrs", "re2", "rich", "yaml")

PROVIDES: Final[Mapping[str, tuple[str, ...]]] = {
    "runtime": _RUNTIME,
    "webhooks": (*_RUNTIME, "cryptography"),
    "kubectl": _KUBECTL,
    "manager": tuple(sorted({*_RUNTIME, *_KUBECTL, "cryptography", "h2", "hyperframe"})),
}
"""The modules that each extra of ``pyproject.toml`` brings."""


def require(what: str, extra: str, *modules: str) -> None:
    """Refuse to go on without the libraries of an extra.

    Args:
        what: the part that needs them, for the error.
        extra: what to install, one of :data:`PROVIDES`.
        modules: all that this part needs; when absent, all that the extra brings.

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
