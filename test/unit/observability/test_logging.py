"""How log lines look and where they go."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from jobsetpy.observability.logging import configure, get_logger


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    """Logging is global to the process: leave it as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict]:
    """The JSON lines written so far."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class TestJson:
    """For machines."""

    def test_line(self):
        """A line has time, level, component, text and values, and what is bound to the context."""
        stream = io.StringIO()
        configure("json", "info", stream=stream)
        with structlog.contextvars.bound_contextvars(object="ns/a"):
            get_logger("test").info("it happened", count=3, odd={1})

        (line,) = lines(stream)
        assert line.pop("time").endswith("Z")
        assert line == {
            "level": "info",
            "component": "test",
            "msg": "it happened",
            "count": 3,
            "odd": [1],
            "object": "ns/a",
        }

    def test_unknown_values_become_text(self):
        """A value that JSON has no form for is written as text, and never an error."""
        stream = io.StringIO()
        configure("json", stream=stream)
        get_logger("test").info("x", value=ValueError("y"))

        assert lines(stream)[0]["value"] == "y"

    def test_traceback_shows_no_variables(self):
        """A stack is one text without the values of local variables."""
        stream = io.StringIO()
        configure("json", stream=stream)
        secret = "hunter2".upper()
        try:
            raise ValueError(len(secret))
        except ValueError as error:
            get_logger("test").error("failed", exc_info=error)

        (line,) = lines(stream)
        assert "Traceback" in line["exception"]
        assert "HUNTER2" not in stream.getvalue()

    def test_level(self):
        """Lines below the level are left out."""
        stream = io.StringIO()
        configure("json", "warning", stream=stream)
        logger = get_logger("test")
        logger.debug("no")
        logger.info("no")
        logger.warning("yes")

        assert [line["msg"] for line in lines(stream)] == ["yes"]

    def test_standard_logging_comes_along(self):
        """Lines of libraries look the same, from WARNING up, with their arguments filled in."""
        stream = io.StringIO()
        configure("json", "debug", stream=stream)
        logging.getLogger("lib").info("no")
        logging.getLogger("lib").warning("slow: %d", 5)

        (line,) = lines(stream)
        assert (line["msg"], line["level"], line["component"]) == ("slow: 5", "warning", "lib")

    def test_logger_made_before(self):
        """A logger made before the set-up follows it."""
        logger = get_logger("early")
        stream = io.StringIO()
        configure("json", stream=stream)
        logger.info("x")

        assert lines(stream)[0]["component"] == "early"


class TestConsole:
    """For people."""

    def test_auto_is_console_on_a_terminal(self):
        """On a terminal lines are for people, in colours."""
        stream = Terminal()
        configure("auto", stream=stream)
        get_logger("test").info("hello", n=1)

        assert "hello" in stream.getvalue()
        assert "\x1b[" in stream.getvalue()
        assert not stream.getvalue().startswith("{")

    def test_auto_is_json_elsewhere(self):
        """Elsewhere lines are JSON."""
        stream = io.StringIO()
        configure("auto", stream=stream)
        get_logger("test").info("hello")

        assert lines(stream)[0]["msg"] == "hello"

    def test_console_into_a_file_has_no_colours(self):
        """Asked for in a file, lines are for people, without colours."""
        stream = io.StringIO()
        configure("console", stream=stream)
        get_logger("test").info("hello")

        assert "hello" in stream.getvalue()
        assert "\x1b[" not in stream.getvalue()


@pytest.mark.parametrize(("format_", "level"), [("xml", "info"), ("json", "loud")])
def test_unknown_options(format_: str, level: str):
    """Unknown formats and levels are refused."""
    with pytest.raises(ValueError, match="unknown log"):
        configure(format_, level)
