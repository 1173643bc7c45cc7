"""Configuration of structlog, once per process: JSON lines, or colours for a terminal.

Events are constant texts with key/value pairs. Values bound in ``structlog.contextvars`` (the
controller binds ``controller``, ``object`` and ``reconcile_id``) are in every line of a reconcile.
Libraries that use the standard library's ``logging`` are logged in the same format, from WARNING.

Text that resembles a credential is removed from every line, whatever its origin: bearer tokens,
JSON web tokens, private keys. This is the last resort; nothing logs one on purpose.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import msgspec

from jobsetpy.observability._lean_structlog import structlog

Format = Literal["auto", "json", "console"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


_CREDENTIAL: Final = re.compile(
    r"(?P<word>\bbearer\s+|\bauthorization\W{1,6}basic\s+)[\w.~+/=-]{8,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]*KEY-----)?",
    re.IGNORECASE,
)
_HINT: Final = re.compile("bearer|authorization|eyJ|PRIVATE KEY", re.IGNORECASE)


def without_credentials(text: str) -> str:
    """Return ``text`` with everything that resembles a credential replaced by ``***``."""
    if _HINT.search(text) is None:
        return text
    return _CREDENTIAL.sub(lambda found: (found["word"] or "") + "***", text)


def configure(
    format: Format = "auto",  # noqa: A002 - the option is called that everywhere else
    level: str = "info",
    *,
    stream: TextIO | None = None,
) -> None:
    """Configure logging for the whole process; the last call counts.

    Args:
        format: ``json``, ``console``, or ``auto``: console if ``stream`` is a terminal, else JSON.
        level: ``debug``, ``info``, ``warning`` or ``error``; lines below it cost almost nothing.
        stream: output of lines; standard error when absent.

    Raises:
        ValueError: unknown format or level.
    """
    threshold = _LEVELS.get(level.lower())
    if threshold is None:
        raise ValueError(f"unknown log level {level!r}: use one of {', '.join(_LEVELS)}")
    if format not in {"auto", "json", "console"}:
        raise ValueError(f"unknown log format {format!r}: use auto, json or console")
    out = sys.stderr if stream is None else stream
    terminal = out.isatty()
    console = format == "console" or (format == "auto" and terminal)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
    ]
    last = [*(_console(colors=terminal) if console else _json()), _redact]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    _route_standard_logging(out, max(threshold, logging.WARNING), shared, last)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return a logger whose lines carry ``component=name``; may be created before ``configure``."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(component=name)
    return logger


def _json() -> list[structlog.typing.Processor]:
    return [
        # Tracebacks as text: the structured form would include the frames' local variables.
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("msg"),
        structlog.processors.JSONRenderer(serializer=_dump),
    ]


def _console(*, colors: bool) -> list[structlog.typing.Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors,
            timestamp_key="time",
            exception_formatter=structlog.dev.plain_traceback,  # shows no local variables
        )
    ]


def _redact(_: Any, __: str, line: Any) -> Any:
    """Redact the rendered line, which covers all values at any depth."""
    return without_credentials(line)


def _dump(event: MutableMapping[str, Any], **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _add_component(
    logger: logging.Logger, _: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add the logger's name as ``component``; a record of another library has no logger."""
    event["component"] = event["_record"].name if logger is None else logger.name
    return event


def _route_standard_logging(
    out: TextIO,
    threshold: int,
    shared: list[structlog.typing.Processor],
    last: list[structlog.typing.Processor],
) -> None:
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _add_component],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(threshold)
