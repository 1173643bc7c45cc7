"""After which time a closed barrier names who holds it."""

from __future__ import annotations

import argparse

import pytest

from jobsetpy.app.config import flags
from jobsetpy.app.config.configuration import parse, validate
from jobsetpy.app.config.settings import MANAGER
from jobsetpy.reconcilers.restart_in_place.reconciler import RestartInPlaceSettings

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


def effective(tmp_path, text, *arguments):
    """The configuration of a file and flags."""
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + text)
    parser = argparse.ArgumentParser()
    flags.add(parser, MANAGER)
    return flags.read(parser.parse_args(["--config", str(path), *arguments]), MANAGER)


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("", [], 60.0),
        ("inPlaceRestart: {stalledAfter: 2m}", [], 120.0),
        (
            "inPlaceRestart: {stalledAfter: 2m}",
            ["--in-place-restart-stalled-after", "1m30s"],
            90.0,
        ),
    ],
)
def test_where_it_comes_from(tmp_path, text, arguments, expected):
    """A minute, or what the file says, or what the flag says."""
    configuration = effective(tmp_path, text, *arguments)

    assert expected == configuration.make(RestartInPlaceSettings).stalled_after_s


@pytest.mark.parametrize("text", ["0s", "soon"])
def test_unusable_flags(tmp_path, capsys, text):
    """Refused as a whole."""
    with pytest.raises(SystemExit):
        effective(tmp_path, "", "--in-place-restart-stalled-after", text)
    assert "stalled-after" in capsys.readouterr().err


def test_an_unusable_field():
    """Named with its path."""
    (problem,) = validate(parse(HEAD + "inPlaceRestart: {stalledAfter: 0s}"))

    assert problem.startswith("inPlaceRestart.stalledAfter")
