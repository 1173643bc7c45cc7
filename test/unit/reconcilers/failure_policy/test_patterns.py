"""Patterns of failure policies: RE2's syntax, unanchored, in linear time, without errors."""

import time

import pytest

from jobsetpy.reconcilers.failure_policy.patterns import (
    MAX_COSTLY,
    MAX_PATTERN,
    MAX_PATTERNS,
    MAX_TOTAL,
    compiled,
    found,
    pattern_problem,
    patterns_problems,
)
from jobsetpy.reconcilers.validation.create import validate_create
from support.admission import hostile
from support.jobsets import jobset_json, replicated_job
from support.model_kit import begin, rule

LARGE = [rf"(\pL{{30}}){{10}}{at}" for at in range(60)]
"""Each would be a program of 38 MiB."""


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
def test_pattern_matches_anywhere_in_a_message(pattern, text, expected):
    """Unless it has anchors."""

    assert found(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["(", "a**", "[", "(?<=a)b", r"(a)\1", "x" * (MAX_PATTERN + 1)])
def test_invalid_pattern_matches_nothing(pattern):
    """Unsupported and oversized patterns are skipped as well, without an error."""

    assert compiled(pattern) is None
    assert not found(pattern, "aab(x")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(a+)+$", "a" * 5000 + "b"), ("(a|a)*c", "a" * 5000), ("(.*)*x", "y" * 32768)],
)
def test_pattern_is_matched_in_linear_time(pattern, text):
    """A backtracking engine would not end in practice."""
    begin = time.process_time()

    assert not found(pattern, text)
    assert time.process_time() - begin < 1


def test_pattern_is_compiled_once():
    """The compiled object is cached."""

    assert compiled("once") is compiled("once")


def policy(*patterns):
    """Return a failure policy with one rule."""
    return {"maxRestarts": 3, "rules": [rule("FailJobSet", patterns=patterns)]}


def test_pattern_is_refused_when_its_program_is_too_large():
    """The memory of a compiled pattern is limited, independent of its length."""

    assert pattern_problem(LARGE[0]) == "is too large: compiled it takes more than 512 KiB"
    assert not found(LARGE[0], "a" * 300)


@pytest.mark.parametrize("word", [r"\pL", r"node \d{1,4}", "x{100}", r"(?i)\p{Lo}+|é*", "." * 300])
def test_pattern_of_usual_size_is_accepted(word):
    """Usual patterns are far below the limits."""

    assert pattern_problem(word) == ""


@pytest.mark.parametrize(
    ("patterns", "why"),
    [
        (["a"] * (MAX_PATTERNS + 1), "may have 64 patterns, and this one has 65"),
        (["a" * 4000] * 5, f"have 20000 characters, and may have {MAX_TOTAL}"),
        ([r"a{2}\pL\PN"] * 50 + [r"\pL" * (MAX_COSTLY - 149)], "257 Unicode classes"),
    ],
)
def test_patterns_are_refused_when_they_are_too_many_together(patterns, why):
    """Each is refused with the reason, and none is compiled."""
    found_problems = patterns_problems(tuple(patterns))

    assert {why in each for each in found_problems} == {True}


def test_patterns_after_the_first_that_are_too_large_together_are_not_compiled():
    """The time to compile all patterns of a policy is limited, even if each is refused."""
    problems = []
    spent_ms = hostile.cpu_ms(lambda: problems.extend(patterns_problems(tuple(LARGE))))

    assert "too large" in problems[0]
    assert "the patterns before it" in problems[-1]
    assert spent_ms < 150


def test_error_names_the_field_and_a_part_of_the_pattern():
    """A pattern of thousands of characters is not repeated completely."""
    long = "(" + "x" * 4000
    (problem,) = validate_create(jobset_json(failurePolicy=policy("fine", long)))

    assert problem.field == "spec.failurePolicy.rules[0].onJobFailureMessagePatterns[1]"
    assert "missing )" in problem.message
    assert len(problem.message) < 500


def test_stored_policy_with_too_large_patterns_blocks_nothing():
    """They match nothing; rules without patterns apply as usual."""
    cluster = begin(replicated_job("w", 2), failurePolicy=policy(*LARGE))
    cluster.fail("test-js-w-0", message="a" * 300)
    spent_ms = hostile.cpu_ms(cluster.reconcile)

    assert cluster.status.restarts == 1
    assert spent_ms < 300
