"""Loading and start of a user's program by ``jobsetpy run``; its errors are explained in sentences.

A traceback shows only the user's frames. A failure that is not the program's, such as an API server
that does not answer, is reported in one sentence.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jobsetpy.errors import (
    ApiError,
    LeadershipLostError,
    StartTimedOutError,
    StopTimedOutError,
    TransportError,
)

if TYPE_CHECKING:
    from jobsetpy.manager import Manager  # `crds`, which names classes, needs none

Setup = Callable[["Manager"], Awaitable[None] | None]

_OURS: Final = str(Path(__file__).resolve().parents[1])
_NOT_SHOWN: Final = (_OURS, "<frozen ", "<attrs generated", str(Path(importlib.__file__).parent))


class ProgramError(Exception):
    """A user's program cannot be run.

    Args:
        message: the error, and what to do.
        cause: exception of the program, if there is one.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


_FORM: Final = "MODULE:FUNCTION, such as failed_pods:setup for a function setup in failed_pods.py"


def load(target: str) -> Setup:
    """The function that ``MODULE:FUNCTION`` names.

    Raises:
        ProgramError: there is none, or it does not take a manager.
    """
    setup: Setup = named(target)
    _check_callable(setup, target)
    return setup


def named(target: str, form: str = _FORM) -> Any:
    """The object that ``MODULE:NAME`` names.

    Raises:
        ProgramError: there is none, or the text has another form.
    """
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path:
        raise ProgramError(f"{target!r} is not {form}")
    if "/" in module_name or module_name.endswith(".py"):
        name = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ProgramError(f"{module_name!r} is a file, not a module: write {name}:{path}")
    found: Any = _module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise ProgramError(f"{module_name!r} has no {part!r}{hint}")
        found = getattr(found, part)
    return found


def _module(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ProgramError(
                f"there is no module {error.name!r} in {Path.cwd()} or among installed packages"
            ) from None
        raise ProgramError(f"importing {name!r} failed: {error}", error) from None
    except Exception as error:  # noqa: BLE001 - whatever a user's module raises
        raise ProgramError(f"importing {name!r} failed: {_said(error)}", error) from None


def _check_callable(found: Any, target: str) -> None:
    takes = "it has to be a function that takes the manager: def setup(manager): ..."
    if isinstance(found, type) or not callable(found):
        what = "a class" if isinstance(found, type) else f"{type(found).__name__} {found!r}"
        raise ProgramError(f"{target} is {what}: {takes}")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError as error:
        why = f"cannot be called with the manager alone ({error})"
        raise ProgramError(f"{target}{signature} {why}: {takes}") from None


def checked(setup: Setup, target: str) -> Setup:
    """``setup``, with a :class:`ProgramError` for what it does wrong."""

    async def call(manager: Manager) -> None:
        try:
            asked: Any = setup(manager)
            if inspect.isawaitable(asked):
                asked = await asked
        except Exception as error:
            if _is_of_the_cluster(error):
                raise
            raise ProgramError(f"{target} failed: {_said(error)}", error) from None
        if asked is not None:
            raise ProgramError(
                f"{target} returned {asked!r}, which nothing runs: call manager.add(...) with each "
                "controller, and return nothing"
            )

    return call


def ending(error: BaseException) -> tuple[str, BaseException | None] | None:
    """Return the last sentence of a process and its traceback, if any; ``None``: not reported here.

    Args:
        error: exception that ended the manager.
    """
    if isinstance(error, BaseExceptionGroup):
        if len(error.exceptions) != 1:
            return "the manager ended with several errors", error
        return ending(error.exceptions[0])
    if isinstance(error, ProgramError):
        return str(error), error.cause
    if not isinstance(error, Exception) or isinstance(error, LeadershipLostError):
        return None
    if isinstance(error, OSError) and error.errno in {errno.EADDRINUSE, errno.EACCES}:
        where = error.strerror or str(error)
        sentence = (
            f"cannot serve: {where}: choose another address by --health-probe-bind-address, "
            "--metrics-bind-address or --webhook-bind-address"
        )
        return sentence, None
    if _is_of_the_cluster(error):
        notes = "\n".join(getattr(error, "__notes__", ()))
        return "\n".join(filter(None, (str(error) or type(error).__name__, notes))), None
    return f"the manager ended: {_said(error)}", error


def report(command: str, sentence: object, cause: BaseException | None) -> None:
    """Print the end of a command to standard error, after the traceback of its cause, if any."""
    if cause is not None:
        print(*traceback_of(cause), sep="\n", file=sys.stderr)  # noqa: T201
    print(f"jobsetpy {command}: {sentence}", file=sys.stderr)  # noqa: T201


def traceback_of(error: BaseException) -> Iterator[str]:
    """Lines of a traceback without frames of this library and of the import system."""
    trace = traceback.TracebackException.from_exception(error)
    if _trim(trace):
        yield from "".join(trace.format()).splitlines()
    else:  # there are no others: the mistake is this library's
        yield from "".join(traceback.format_exception(error)).splitlines()


def _trim(trace: traceback.TracebackException) -> bool:
    """Remove frames that are not the user's; return whether any, or a place in a file, is left."""
    shown = [frame for frame in trace.stack if not frame.filename.startswith(_NOT_SHOWN)]
    left = bool(shown) or trace.exc_type is SyntaxError
    trace.stack = traceback.StackSummary.from_list(shown)
    for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        if other is not None:
            left = _trim(other) or left
    return left


def _is_of_the_cluster(error: BaseException) -> bool:
    return isinstance(error, ApiError | TransportError | StartTimedOutError | StopTimedOutError)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
