"""``kubectl jobset lint --log``: patterns and rules of a manifest on a log."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jobsetpy.api import keys
from jobsetpy.kubectl import log_trial
from jobsetpy.kubectl import main as plugin
from support.jobsets import jobset_json, replicated_job

RULES = """
- {name: nan, line: 'loss=(.*)', number: finite, lines: 2}
- {name: starts, line: started, within: 1m}
- {name: evaluates, line: eval, again-within: 5m, then: report}
- {name: stuck, line: '(a+)+$'}
"""
LOG = """2026-01-01T00:00:00.5Z started
2026-01-01T00:00:10Z loss=1 step=1
2026-01-01T00:00:20Z eval
2026-01-01T00:00:30Z loss=nan step=2
2026-01-01T00:09:00Z eval
2026-01-01T00:09:01Z loss=inf step=3
"""


def test_rules_are_tried_when_a_log_is_given(tmp_path: Path) -> None:
    """Steps, the line at which a rule acts, times from the stamps of the log."""
    log = tmp_path / "log"
    log.write_text(LOG)
    body = jobset_json(replicated_job("w"))
    body["metadata"]["annotations"] = {
        keys.PROGRESS_PATTERN_ANNOTATION: "step=([0-9]+)",
        keys.LOG_RULES_ANNOTATION: RULES.replace("(.*)", "([^ ]*)"),
    }

    assert log_trial.try_jobset(body, str(log)) == [
        "progress-pattern: 3 of 6 lines show progress, steps 1 to 3",
        "rule nan: 3 lines; restart at line 6: loss=inf step=3",
        "rule starts: 1 line; in time",
        "rule evaluates: 2 lines; report: again-within 5 min is exceeded: 9 min",
        "rule stuck: 0 lines; no outcome",
    ]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "completed step: 7, seconds: 1\n",
            "auto (maxtext): 1 of 1 lines show progress, steps 7 to 7",
        ),
        ("x\n", "auto: none of 1 lines shows progress"),
    ],
)
def test_patterns_of_frameworks_are_tried_when_there_is_no_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, said: str
) -> None:
    """A user sees at once if ``auto`` would do."""
    (tmp_path / "log").write_text(log)
    code = plugin.main(["lint", "--log", str(tmp_path / "log")])

    assert (code, capsys.readouterr().out) == (0, f"progress-pattern {said}\n")


def test_rules_of_a_template_are_tried_in_place_of_those_of_the_jobset(tmp_path: Path) -> None:
    """As its agents have them; each ReplicatedJob with other ones is tried."""
    (tmp_path / "log").write_text(LOG)
    body = jobset_json(replicated_job("a"), replicated_job("b"), replicated_job("c"))
    own, shared = ({keys.LOG_RULES_ANNOTATION: f"[{{name: r, line: {x}}}]"} for x in ("eval", "st"))
    template = body["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    template["metadata"] = {"annotations": own}
    body["metadata"]["annotations"] = shared

    assert log_trial.try_jobset(body, str(tmp_path / "log")) == [
        "a: rule r: 4 lines; restart at line 1: started",
        "b: rule r: 2 lines; restart at line 3: eval",
    ]


@pytest.mark.parametrize(
    ("word", "expected"),
    [("off", "log: no pattern and no rule: set"), ("fast", "log: progress-pattern auto: none of")],
)
def test_verdict_has_the_trial_when_there_is_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, expected: str
) -> None:
    """With what a word stands for; a JobSet without patterns has nothing to try."""
    data = jobset_json(replicated_job("w"))
    data["metadata"]["annotations"] = {keys.IN_PLACE_RESTART_ANNOTATION: word}
    container = {"name": "w", "image": "i", "command": ["./train"]}
    data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] |= {
        "containers": [container]
    }
    data |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(data))
    code = plugin.main(["lint", str(tmp_path / "m.yaml"), "--log", "/dev/null"])

    said = capsys.readouterr().out
    assert (code, expected in said) == (0, True)
