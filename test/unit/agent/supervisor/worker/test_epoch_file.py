"""The file with the running epoch, and the example on checkpoints that reads it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from jobsetpy.agent.supervisor.worker.epoch_file import EpochFile
from support.agents.agent_process import AgentLog

PAGE = Path(__file__).parents[5] / "docs/how-to/lost-nodes.md"


@pytest.fixture
def running(tmp_path: Path) -> EpochFile:
    """A file in an empty folder."""
    return EpochFile(str(tmp_path / "epoch"), AgentLog())


def test_file_has_the_epoch_from_its_start_to_its_end(running: EpochFile) -> None:
    """Each epoch gets a new file, which any user may read."""
    path = Path(running.path)
    for epoch in (1, 23):
        running.write(epoch)
        assert path.read_text() == str(epoch)
        assert path.stat().st_mode & 0o777 == 0o644
        running.remove()
        assert not path.exists()
    running.remove()


def test_file_of_an_earlier_run_of_the_container_is_removed(running: EpochFile) -> None:
    """The memory belongs to the pod and outlives the container."""
    Path(running.path).write_text("7")
    running.remove()

    assert not Path(running.path).exists()


def test_link_in_place_of_the_file_is_not_followed(running: EpochFile, tmp_path: Path) -> None:
    """Its target stays as it is."""
    other = tmp_path / "other"
    other.write_text("mine")
    Path(running.path).symlink_to(other)
    running.write(3)

    assert (other.read_text(), Path(running.path).read_text()) == ("mine", "3")


def test_missing_folder_is_logged_and_ends_nothing(tmp_path: Path) -> None:
    """A worker then finds that its epoch is over, and saves nothing."""
    log = AgentLog()
    running = EpochFile(str(tmp_path / "none" / "epoch"), log)
    running.write(1)
    running.remove()

    assert log.events == ["the epoch file cannot be written: a worker that reads it saves nothing"]


# ---- the example of the page ---------------------------------------------------------------------


def example() -> str:
    """Return the Python code of the page about lost nodes."""
    return textwrap.dedent(PAGE.read_text().partition("```python\n")[2].partition("```")[0])


class Worker:
    """Worker of epoch 4 that saves its second checkpoint."""

    def __init__(self, folder: Path, running: EpochFile, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("JOBSET_EPOCH", "4")
        monkeypatch.setenv("JOBSET_EPOCH_FILE", running.path)
        running.write(4)
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.write_text("first")
        self.running = running
        self.while_saving = lambda: None

    def save(self, state: str, path: str) -> None:
        """Play the framework."""
        Path(path).write_text(state)
        self.while_saving()

    def run(self) -> None:
        """Run the code of the page."""
        exec(example(), {"save": self.save, "state": "second"})


@pytest.fixture
def worker(tmp_path: Path, running: EpochFile, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker before its second checkpoint."""
    return Worker(tmp_path, running, monkeypatch)


def test_checkpoint_is_replaced_while_the_epoch_runs(worker: Worker) -> None:
    """It is renamed, so that the last one exists until the next one is complete."""
    worker.run()

    assert worker.checkpoint.read_text() == "second"


def test_checkpoint_is_kept_when_the_agent_has_ended_the_epoch(worker: Worker) -> None:
    """The worker fails at the latest when the agent kills it."""
    worker.while_saving = worker.running.remove
    with pytest.raises(FileNotFoundError):
        worker.run()

    assert worker.checkpoint.read_text() == "first"


def test_checkpoint_is_kept_when_another_epoch_runs(worker: Worker) -> None:
    """Unfinished files have the epoch in their name."""
    worker.while_saving = lambda: worker.running.write(6)
    worker.run()

    assert worker.checkpoint.read_text() == "first"
    assert sorted(path.name for path in worker.checkpoint.parent.glob("*.half")) == [
        "checkpoint.4.half"
    ]
