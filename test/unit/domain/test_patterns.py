"""Regular expressions in linear time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.domain.patterns import Pattern, PatternError, compiled, found

CASES = [
    ("", "", True),
    ("", "abc", True),
    ("b", "abc", True),
    ("^b", "abc", False),
    ("c$", "abc", True),
    ("a.c", "a\nc", False),
    ("(?s)a.c", "a\nc", True),
    ("(?m)^b$", "a\nb\nc", True),
    ("^b$", "a\nb\nc", False),
    (r"\Aab\z", "ab", True),
    ("ab|cd", "xcdx", True),
    ("a(b|c)*d", "abcbcd", True),
    ("a(b|c)+d", "ad", False),
    ("ab?c", "ac", True),
    ("a{2,3}b", "ab", False),
    ("a{2,3}b", "aab", True),
    ("^a{2}$", "aaa", False),
    ("^a{2,}$", "aaaa", True),
    ("a{x", "a{x", True),
    ("a{,2}", "a{,2}", True),
    ("a*?b", "aab", True),
    (r"\d+", "exit code 137", True),
    (r"^\D+$", "abc1", False),
    (r"\w\s\w", "a b", True),
    (r"\bfail\b", "it did fail today", True),
    (r"\bfail\b", "failed", False),
    (r"fail\B", "failed", True),
    (r"\.", "a", False),
    (r"\x41\x{42}", "AB", True),
    (r"\Qa.b*\E+", "a.b*+", False),
    (r"\Qa.b\E", "a.b", True),
    ("[a-c]x", "bx", True),
    ("[^a-c]x", "bx", False),
    ("[]a]", "]", True),
    ("[a-]", "-", True),
    (r"[\d.]+$", "1.2", True),
    (r"[\]]", "]", True),
    ("[[:alpha:]]", "7", False),
    ("[[:^digit:]]", "a", True),
    ("(?i)ERROR", "an Error", True),
    ("(?i:e)rror", "Error", True),
    ("(?i:e)rror", "ERROR", False),
    ("(?i)[^a]", "A", False),
    ("a(?i)b|c", "aB", True),
    ("a(?i)b|c", "C", True),
    ("(?P<name>a)(?<other>b)", "ab", True),
    ("(?:ab)+", "abab", True),
    ("(|a)b", "b", True),
    ("(a*)*", "", True),
    ("(a*)+$", "b", True),
    ("ü", "müsli", True),
    (r"PodFailurePolicy: .* exit code (3|4)\b", "PodFailurePolicy: x exit code 4", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), CASES)
def test_found(pattern, text, expected):
    """A pattern is looked for anywhere in the text."""
    assert expected is found(pattern, text)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[a", "[b-a]", "*", "a**", "+", r"\k", r"(a)\1", "(?=a)", "(?<=a)", "(?!a)",
     r"\x{zz}", "a{1001}", "a{3,2}", "(?q)a", "(?P<>a)", "\\", "[[:nope:]]", "((a{100}){100}){100}",
     "(" * 200 + ")" * 200, r"\pL", "(?", r"\x{"],
)  # fmt: skip
def test_invalid(pattern):
    """What is not valid matches nothing, and is never an error for the caller."""
    with pytest.raises((PatternError, RecursionError)):
        Pattern(pattern)

    assert compiled(pattern) is None
    assert not found(pattern, "a")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(a+)+$", "a" * 5000 + "b"), ("(a|aa)+$", "a" * 5000 + "b"), ("(a*)*b", "a" * 5000),
     ("(.*)(.*)(.*)(.*)[^a]$", "a" * 5000)],
)  # fmt: skip
def test_catastrophes(pattern, text):
    """Patterns that take a backtracking engine longer than a life are done soon."""
    begin = time.process_time()

    assert not found(pattern, text)
    assert time.process_time() - begin < 2


def test_the_worst_pattern_gives_up():
    """There is a limit to the work, whatever pattern and text."""
    begin = time.process_time()

    assert not found("(a?){1000}(a?){1000}(a?){400}[^a]", "a" * 32768)
    assert time.process_time() - begin < 10


PARTS = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "a*", "b+", "(a|b)", "(ab)?", "(a|b*)*", "^", "$", r"\b", r"\w",
     "a{1,2}", "|", "(b|)", "(?:a+b)*"]
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.lists(PARTS, max_size=6), st.text("ab c\n", max_size=8))
def test_agrees_with_the_standard_library(parts, text):
    """On the common syntax it finds what Python's engine finds."""
    pattern = "".join(parts)
    try:
        # Python's $ also matches before a last newline; RE2's does not.
        reference = re.compile(pattern.replace("$", r"\Z"))
    except re.error:
        return

    if compiled(pattern) is not None:
        assert (reference.search(text) is not None) is found(pattern, text)
