"""Patterns and rules on lines of output."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api.log_lines import (
    BUILT_IN,
    MAX_LINE,
    MAX_RULES,
    LogRule,
    Matcher,
    Seen,
    Splitter,
    bounded,
    clean,
    number_is_right,
    parse_rules,
    pattern_problem,
    progress_patterns,
)
from jobsetpy.reconcilers.failure_policy.patterns import pattern_problem as re2_problem

BAR = "  5%|▌         | 25/500 [00:10<03:10,  2.50it/s]"


def seen_in(pattern: str, *lines: str) -> Seen:
    """Return what a matcher finds in lines."""
    seen = Seen()
    Matcher(progress_patterns(pattern), []).take([clean(each.encode()) for each in lines], seen)
    return seen


@pytest.mark.parametrize(
    ("pattern", "line", "name", "step", "section"),
    [
        ("auto", BAR, "transformers", 25, ""),
        ("auto", "100%|██████████| 500/500 [03:20<00:00,  2.50it/s]", "transformers", 500, "done"),
        ("auto", "Epoch 2:  50%|█████     | 5/10 [00:00<00:00, 12.30it/s, v_num=0]", "lightning", 25, ""),
        ("auto", "Epoch 0: 24it [00:05,  4.80it/s, v_num=0]", "lightning", 24, ""),
        ("auto", "Epoch 1: 24it [00:05,  4.80it/s, v_num=0]", "lightning", -1, ""),
        ("auto", " [2026-01-01 10:00:00] iteration       10/     500 | consumed samples:", "megatron", 10, ""),
        ("auto", "Training epoch 0, iteration 9/99 | lr: 1e-4 | global_step: 9 | loss: 8", "nemo", 9, ""),
        ("auto", "Epoch 0: :   5%|▌| 24/500 [00:09<03:10, reduced_train_loss=7.1, global_step=24.0]", "nemo", 24, ""),
        ("auto", "Epoch 0: :   5%|▌| 24/500 [00:09<03:10, lr=1e-9, global_step=24.00, loss=7.1]", "nemo", 24, ""),
        ("auto", "Epoch 0: :  25%|▌| 123456/500000 [9:59<9:59, global_step=1.23e+5]", "nemo", -1, ""),
        ("auto", "INFO | root | step 10 | epoch 0 | loss 2.7 | grad_norm 1.1", "automodel", 10, ""),
        ("auto", "[Rampup Batch Size Phase], completed step: 3, seconds: 1.1", "maxtext", 3, ""),
        ("auto", "completed step: 7, seconds: 1.150, TFLOP/s/device: 470.000", "maxtext", 7, ""),
        ("auto", "[titan] INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.2175  \x1b[33mmemory:", "torchtitan", 1, ""),
        (r"step[ =:]+(\d+)", "loss=0.3 step=12", "", 12, ""),
        ("tick", "a tick", "", -1, ""),
        (r"(?P<section>eval) (\d+)", "eval 3", "", -1, "eval"),
        (r"(\d+) (?P<section>[a-z]+)", "12 checkpoint", "", 12, "checkpoint"),
        (r"at (?P<step>\d+)|(?P<section>saving)", "saving", "", -1, "saving"),
    ],
)  # fmt: skip
def test_line_shows_step_and_section_when_it_matches(
    pattern: str, line: str, name: str, step: int, section: str
) -> None:
    """Lines as the frameworks print them, and users' patterns."""
    seen = seen_in(pattern, line)

    assert (seen.progress, seen.pattern, seen.step, seen.section) == (True, name, step, section)


@pytest.mark.parametrize(
    "line",
    [
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:00<00:00,  2.50it/s]",
        " 30%|███       | 3/10 [00:00<00:00,  9.10it/s]\x1b[A",
        '{"ts":"2026-01-01T00:00:00.000Z","level":"info","event":"step: 5  loss: 3","ms":1}',
        "{'loss': 0.5, 'learning_rate': 5e-05, 'epoch': 0.1}",
    ],
)
def test_line_shows_no_progress_when_it_is_another_bar_or_the_agents(line: str) -> None:
    """Bars of loading and of a nested evaluation, the agent's log, a dictionary of losses."""
    assert not seen_in("auto", line).progress


def test_auto_stays_with_a_pattern_when_it_has_matched_once() -> None:
    """Counters of two libraries are not mixed."""
    seen = Seen()
    matcher = Matcher(BUILT_IN, [])
    matcher.take(["completed step: 7, seconds: 1"], seen)
    matcher.take([BAR], seen)

    assert (seen.step, seen.pattern) == (7, "maxtext")


@pytest.mark.parametrize("pattern", BUILT_IN.values())
def test_built_in_patterns_are_valid_when_re2_reads_them(pattern: str) -> None:
    """Both engines understand them."""
    assert (pattern_problem(pattern), re2_problem(pattern)) == ("", "")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "must have 1 to"),
        ("a" * 2000, "must have 1 to"),
        ("(", "is no regular expression"),
        (r"\pL", "is no regular expression"),
        (r"a\Z", "not all engines"),
        ("(?=a)", "not all engines"),
        ("(?<!a)b", "not all engines"),
        (r"(a)\1", "not all engines"),
        ("a++", "not all engines"),
        ("a{,5}", "not all engines"),
        ("[[:alpha:]]", "not all engines"),
        ("[a&&b]", "is no regular expression"),
    ],
)
def test_pattern_is_refused_when_engines_read_it_differently(pattern: str, why: str) -> None:
    """A pattern that admission accepts means the same to the agent."""
    assert why in pattern_problem(pattern)


def test_search_is_interrupted_when_it_backtracks_without_end() -> None:
    """The pattern is named and no longer used; the others still are."""
    rule = LogRule(name="slow", line="(a+)+$")
    matcher = Matcher({"": "step=([0-9]+)"}, [rule], limit=bounded(seconds=0.05))
    first, second = Seen(), Seen()
    matcher.take(["a" * 30 + "!"], first)
    matcher.take(["a" * 30 + "!", "step=3"], second)

    assert (first.slow, second.slow, second.step) == (["slow"], [], 3)


# ---- rules ----

NAN = {"name": "nan", "line": r"loss=(\S+)", "number": "finite", "lines": 3}


@pytest.mark.parametrize(
    ("rule", "lines", "broken"),
    [
        (NAN, ["loss=nan"] * 2 + ["loss=1"] + ["loss=nan,"] * 2, {}),
        (NAN, ["loss=inf", "x", "loss=-inf", "loss=nan;"], {"nan": "loss=nan;"}),
        (NAN, ["loss=?"] * 9, {}),
        ({"name": "low", "line": r"mfu: (\S+)%", "number": "> 30"}, ["mfu: 31%", "mfu: 29.5%"], {"low": "mfu: 29.5%"}),
        ({"name": "high", "line": r"t=(\S+)", "number": "<1e2"}, ["t=99"], {}),
        ({"name": "cuda", "line": "(CUDA error.*)"}, ["x: CUDA error: 77"], {"cuda": "CUDA error: 77"}),
        ({"name": "late", "line": "alive", "again-within": "5m"}, ["alive"], {}),
    ],
)  # fmt: skip
def test_rule_is_broken_when_its_lines_say_so(
    rule: dict[str, object], lines: list[str], broken: dict[str, str]
) -> None:
    """Numbers count in a row; a line without a number does not."""
    seen = Seen()
    matcher = Matcher({}, parse_rules([rule]))
    for line in lines:
        matcher.take([line], seen)

    assert seen.broken == broken


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({}, "must be a list of 1 to 16 rules"),
        ([], "must be a list"),
        ([{}] * 17, "must be a list"),
        (["x"], "[0] must be a mapping"),
        ([{"name": "A", "line": "x"}], "[0].name 'A' must be lower case"),
        ([{"name": "a"}], "[0].line 'NoneType' must be a pattern"),
        ([{"name": "a", "line": "("}], "[0].line '(' is no regular expression"),
        ([{"name": "a", "line": "x"}] * 2, "[1].name 'a' is the name of another rule"),
        (
            [{"name": "a", "line": "x", "whitin": "5m"}],
            "[0].whitin is unknown: must be one of name",
        ),
        ([{"name": "a", "line": "x", "within": "soon"}], "[0].within 'soon' must be a duration"),
        ([{"name": "a", "line": "x", "within": True}], "[0].within True must be a duration"),
        ([{"name": "a", "line": "(x)", "number": "3"}], "[0].number '3' must be \"finite\""),
        ([{"name": "a", "line": "(x)", "number": "> 1.2.3"}], "[0].number"),
        ([{"name": "a", "line": "x", "number": "finite"}], "[0].line 'x' must have a group"),
        (
            [{"name": "a", "line": "(x)", "number": "finite", "within": 5}],
            "has no effect with times",
        ),
        ([{"name": "a", "line": "x", "lines": 3}], "[0].lines 3 must be from 1"),
        ([{"name": "a", "line": "x", "then": "panic"}], "[0].then 'panic' must be one of restart"),
        ([{"name": "a", "line": "x", "then": ["x"]}], "[0].then 'list' must be one of"),
    ],
)
def test_rules_are_refused_with_path_and_value_when_they_are_invalid(
    rules: object, why: str
) -> None:
    """The message says what would be right."""
    with pytest.raises(ValueError) as refused:
        parse_rules(rules)
    assert why in str(refused.value)


@pytest.mark.parametrize("bound", ["finite", "< 5", "> -1.5e3"])
def test_number_is_never_right_when_it_is_nan(bound: str) -> None:
    """NaN breaks every requirement."""
    assert not number_is_right(bound, float("nan"))


# ---- lines ----


@given(
    st.lists(st.binary(max_size=40) | st.just(b"x" * (2 * MAX_LINE)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_lines_are_the_same_when_output_comes_in_other_pieces(
    lines: list[bytes], rand: random.Random
) -> None:
    """Boundaries of reads have no effect, wherever they are."""
    data = b"\n".join(lines) + b"\r"
    whole = Splitter().feed(data)
    pieces, found, at = Splitter(), list[str](), 0
    while at < len(data):
        size = rand.choice((1, 3, 50, 5000))
        found += pieces.feed(data[at : at + size])
        at += size

    assert found == whole


def test_bar_is_a_line_when_nothing_follows_it() -> None:
    """A bar begins with what ends the one before; other lines are awaited."""
    lines = Splitter()
    assert (lines.feed(b"\r 1/9"), lines.is_bar, lines.bar()) == ([], True, [" 1/9"])
    assert (lines.is_bar, lines.feed(b"\r 2/9\nstep")) == (False, [" 1/9", " 2/9"])
    assert (lines.is_bar, lines.feed(b"=3\n")) == (False, ["step=3"])


def test_findings_of_all_rules_fit_into_one_message_when_lines_are_binary() -> None:
    """Control characters have six bytes each in JSON."""
    rules = [LogRule(name=f"r{number}", line=".") for number in range(MAX_RULES)]
    seen = Seen()
    Matcher({}, rules).take([clean(b"\x01" * 10_000_000)], seen)

    assert len(seen.broken) == MAX_RULES
    assert len(msgspec.json.encode(seen)) < 1 << 18
