"""``python -m jobsetpy.agent``: steps before the first import and after the end.

Signal handlers come first (``signals``). The rest saves time and memory that every pod of a group
spends at each restart. Figures are those of ``bench/agent.py``.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn

from jobsetpy.agent.protocol.signals import EXIT_STOPPED, leave_on_signals

_START: Final = time.monotonic()

_DEFERRED: Final[dict[str, dict[str, Any]]] = {
    "base64": {},
    # For dataclasses (of h11), which generates docstrings that are never read.
    "inspect": {"signature": lambda _cls: ""},
    "linecache": {},
    "locale": {},
    # For uuid (of msgspec).
    "platform": {"system": lambda: os.uname().sysname},
    # For asyncio.subprocess.
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "textwrap": {},
    "tokenize": {},
}
"""Modules that asyncio, ssl, logging, h11 and msgspec import, but that run only when something
fails; with what they import in turn, some 2 MB and 10 ms. The attributes are those that the import
itself uses; they are removed after it."""

_TLS_BUFFER: Final = 32 * 1024
"""Size in bytes of asyncio's read buffer per TLS connection: two TLS records, not 256 kB."""


class Deferred(ModuleType):
    """Placeholder for a module, which is imported when one of its attributes is first used."""

    def __getattr__(self, name: str) -> Any:
        """Import the real module (attributes of the import system are missing before that)."""
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


def _load() -> Any:
    """Import the agent in the cheapest way and return its ``main``."""
    # Nothing that is loaded now will ever be garbage: scanning it is wasted time.
    gc.disable()
    deferred = [Deferred(name) for name in _DEFERRED if name not in sys.modules]
    for module in deferred:
        vars(module).update(_DEFERRED[module.__name__])
        sys.modules[module.__name__] = module
    from jobsetpy.agent.main import main

    if sys.argv[1:2] == ["supervise"]:
        import jobsetpy.agent.supervisor.supervisor
    else:
        import jobsetpy.agent.sidecar.sidecar  # noqa: F401 - main imports it again

    for module in deferred:
        for name in _DEFERRED[module.__name__]:
            vars(module).pop(name)
    import asyncio.sslproto

    asyncio.sslproto.SSLProtocol.max_size = _TLS_BUFFER
    gc.freeze()
    gc.enable()
    return main


def _start() -> NoReturn:
    # A sidecar that gets a stop signal has done its work; a pod whose worker never ran has not.
    leave_on_signals(EXIT_STOPPED if sys.argv[1:2] in (["supervise"], ["wait-for-group"]) else 0)
    code = _load()(sys.argv[1:], start=_START)
    # An orderly shutdown of the interpreter would take longer than everything else at the end.
    os._exit(code)


if __name__ == "__main__":
    _start()
