"""Any command of a container is parsed without an error, in bounded time."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.reconcilers.restart_in_place.launchers.launchers import MAX_PROCESSES, translate
from jobsetpy.reconcilers.restart_in_place.validation.launchers import advice

WORDS = st.sampled_from([
    "torchrun", "accelerate", "launch", "deepspeed", "python", "-m", "torch.distributed.run", "sh",
    "-c", "bash", "-lc", "exec", "env", "A=1", "--", "-", "--nproc-per-node", "--nnodes=2",
    "--num_processes", "8", "--num_gpus=4", "--module", "--no-python", "t.py", "$(X)", "${X}", "$X",
    "&&", ";", "|", "2>&1", "'", '"', "\\", "\n", "#", "cd", "/app", "export", "`id`", "",
])  # fmt: skip
TEXTS = st.one_of(WORDS, st.lists(WORDS, max_size=12).map(" ".join), st.text(max_size=30))


@settings(max_examples=400)
@given(
    st.lists(TEXTS, max_size=12),
    st.dictionaries(st.sampled_from("XAN"), TEXTS),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_any_command_is_parsed(
    words: list[str], variables: dict[str, str], gpus: int, pods: int
) -> None:
    """A translation has a command or a reason, and its advice is one short line."""
    found = translate(words, variables=variables, gpus=gpus, pods=pods)
    if found is None:
        return
    assert found.command or found.notes
    assert found.processes is None or 1 <= found.processes <= MAX_PROCESSES
    assert all(note.isprintable() and len(note) < 300 for note in found.notes)
    for is_supervised in (True, False):
        text = advice(found, is_supervised=is_supervised)
        assert len(text) < 700
    json.dumps(found.command)


@given(st.lists(st.sampled_from(["--lr", "1", "a b", "$(X)", "-m", "--nnodes", "--"]), max_size=8))
def test_arguments_of_the_program_are_kept(arguments: list[str]) -> None:
    """Words after the program are its own, with any launcher."""
    for launcher in (["torchrun"], ["accelerate", "launch"], ["deepspeed"]):
        found = translate([*launcher, "t.py", *arguments])
        assert found is not None
        assert found.command == ("python", "-u", "t.py", *arguments)
