"""Calls of apt-get next to other processes that use the package database."""

import pytest

from hack.cluster import ClusterError, _apt

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


@pytest.fixture
def apt(tmp_path, monkeypatch):
    """An apt-get that fails with an error as often as wanted, and records its calls."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(_apt, "PAUSE_S", 0.0)

    def make(failures, error):
        calls, program = tmp_path / "calls", tmp_path / "apt-get"
        program.write_text(
            f"#!/bin/sh\necho call >> {calls}\n"
            f'[ "$(wc -l < {calls})" -gt {failures} ] || {{ echo "{error}" >&2; exit 100; }}\n'
        )
        program.chmod(0o755)
        return lambda: len(calls.read_text().splitlines())

    return make


def test_call_is_repeated_while_another_process_holds_a_lock(apt):
    """dpkg's own time-out does not cover the locks of lists and archives."""
    calls = apt(2, LOCKED)
    _apt.apt_get(["update"])
    assert calls() == 3


@pytest.mark.parametrize(
    ("error", "timeout_s"),
    [("E: Unable to locate package nft", 60), (LOCKED, 0.5)],
    ids=["other error", "lock held too long"],
)
def test_call_fails_when_waiting_does_not_help(apt, error, timeout_s):
    """The error has the command and its last words."""
    apt(10**6, error)
    with pytest.raises(ClusterError, match=r"(?s)`apt-get install nft` failed.*E: "):
        _apt.apt_get(["install", "nft"], timeout_s)
