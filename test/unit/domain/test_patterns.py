"""Patterns of failure policies: RE2's syntax, unanchored, in linear time, never an error."""

import time

import pytest

from jobsetpy.domain.jobs.patterns import MAX_PATTERN, compiled, found


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("some message", "this is some message with critical error", True),
        ("some message", "some critical error with a message", False),
        ("^exit code 3$", "exit code 3", True),
        ("^exit code 3$", "exit code 31", False),
        (r"exit code (2|3)\b", "failed with exit code 3 on rank 7", True),
        ("(?i)OOM", "killed: oom", True),
        (r"\d{3}", "rank 128 failed", True),
        ("", "anything", True),
        ("é+", "caféé", True),
    ],
)
def test_matches_anywhere(pattern, text, expected):
    """A pattern matches somewhere in the message unless it says otherwise."""

    assert found(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["(", "a**", "[", "(?<=a)b", r"(a)\1", "x" * (MAX_PATTERN + 1)])
def test_what_is_no_re2_pattern_matches_nothing(pattern):
    """Invalid, unsupported and oversized patterns are skipped, not raised."""

    assert compiled(pattern) is None
    assert not found(pattern, "aab(x")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(a+)+$", "a" * 5000 + "b"), ("(a|a)*c", "a" * 5000), ("(.*)*x", "y" * 32768)],
)
def test_catastrophes(pattern, text):
    """Patterns that take a backtracking engine longer than a life are done at once."""
    begin = time.process_time()

    assert not found(pattern, text)
    assert time.process_time() - begin < 1


def test_a_pattern_is_compiled_once():
    """The same pattern gives the same compiled object."""

    assert compiled("once") is compiled("once")
