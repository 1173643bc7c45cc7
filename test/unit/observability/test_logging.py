"""Formats and destinations of log lines."""

import io
import json
import logging

import pytest
import structlog

from jobsetpy.observability.logging import configure, get_logger


class Terminal(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream() -> io.StringIO:
    """A stream that is no terminal."""
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict]:
    """JSON lines written so far."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class TestJson:
    """Lines for machines."""

    def test_line(self, stream):
        """A line has time, level, component, text, values, and the values bound to the context."""
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

    def test_unknown_values_become_text(self, stream):
        """A value without a JSON form is written as text, and is never an error."""
        configure("json", stream=stream)
        get_logger("test").info("x", value=ValueError("y"))

        assert lines(stream)[0]["value"] == "y"

    def test_traceback_shows_no_variables(self, stream):
        """A stack is one text without the values of local variables."""
        configure("json", stream=stream)
        secret = "hunter2".upper()
        try:
            raise ValueError(len(secret))
        except ValueError as error:
            get_logger("test").error("failed", exc_info=error)

        (line,) = lines(stream)
        assert "Traceback" in line["exception"]
        assert "HUNTER2" not in stream.getvalue()

    def test_level(self, stream):
        """Lines below the level are omitted."""
        configure("json", "warning", stream=stream)
        logger = get_logger("test")
        logger.debug("no")
        logger.info("no")
        logger.warning("yes")

        assert [line["msg"] for line in lines(stream)] == ["yes"]

    def test_standard_logging_has_the_same_format(self, stream):
        """Lines of libraries from WARNING up are formatted with their arguments."""
        configure("json", "debug", stream=stream)
        logging.getLogger("lib").info("no")
        logging.getLogger("lib").warning("slow: %d", 5)

        (line,) = lines(stream)
        assert (line["msg"], line["level"], line["component"]) == ("slow: 5", "warning", "lib")

    def test_logger_created_before_the_configuration(self, stream):
        """A logger that was created earlier uses the configuration."""
        logger = get_logger("early")
        configure("json", stream=stream)
        logger.info("x")

        assert lines(stream)[0]["component"] == "early"


class TestConsole:
    """Lines for people."""

    def test_auto_is_console_on_a_terminal(self):
        """On a terminal lines are for people, in colours."""
        stream = Terminal()
        configure("auto", stream=stream)
        get_logger("test").info("hello", n=1)

        assert "hello" in stream.getvalue()
        assert "\x1b[" in stream.getvalue()
        assert not stream.getvalue().startswith("{")

    def test_auto_is_json_elsewhere(self, stream):
        """Elsewhere lines are JSON."""
        configure("auto", stream=stream)
        get_logger("test").info("hello")

        assert lines(stream)[0]["msg"] == "hello"

    def test_console_in_a_file_has_no_colours(self, stream):
        """If configured for a file, lines are for people, without colours."""
        configure("console", stream=stream)
        get_logger("test").info("hello")

        assert "hello" in stream.getvalue()
        assert "\x1b[" not in stream.getvalue()


@pytest.mark.parametrize(("format_", "level"), [("xml", "info"), ("json", "loud")])
def test_unknown_options(format_: str, level: str):
    """Unknown formats and levels are refused."""
    with pytest.raises(ValueError, match="unknown log"):
        configure(format_, level)
