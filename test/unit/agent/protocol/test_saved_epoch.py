"""Epoch that an agent saves for the next run of its container."""

from pathlib import Path

import pytest

from jobsetpy.agent.protocol.saved_epoch import Arrival


def test_saved_epoch_is_read_by_the_next_run(tmp_path: Path) -> None:
    """It belongs to one JobSet and is kept until it is removed."""
    arrival = Arrival(str(tmp_path / "note"))
    assert arrival.read() == ("", 0)
    arrival.note("uid-of-a-jobset", 2147483647)
    assert arrival.note("uid", 7) == ""
    assert arrival.read() == ("uid", 7)
    arrival.forget()
    arrival.forget()
    assert arrival.read() == ("", 0)


@pytest.mark.parametrize("text", ["", "uid", "uid ", "uid x", "uid -1", "uid 1_0", "\xff 1 2"])
def test_invalid_file_is_ignored(tmp_path: Path, text: str) -> None:
    """It may be incomplete or of another program."""
    (tmp_path / "note").write_text(text, encoding="latin-1")

    assert Arrival(str(tmp_path / "note")).read() == ("", 0)


def test_path_that_cannot_be_written_has_no_epoch(tmp_path: Path) -> None:
    """A link is not followed, and its target keeps its data."""
    target = tmp_path / "target"
    target.write_text("uid 3")
    (tmp_path / "link").symlink_to(target)
    for path in (tmp_path / "link", tmp_path / "no" / "folder", tmp_path):
        arrival = Arrival(str(path))
        assert str(path) in arrival.note("uid", 4)
        assert arrival.read() == ("", 0)
    Arrival(str(tmp_path / "link")).forget()

    assert target.read_text() == "uid 3"
