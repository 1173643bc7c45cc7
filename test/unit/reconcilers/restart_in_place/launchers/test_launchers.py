"""Launchers of distributed training in commands, and what replaces them."""

from __future__ import annotations

import shlex

import pytest

from jobsetpy.reconcilers.restart_in_place.launchers.launchers import translate

LAUNCH = (
    "accelerate launch --num_processes 2 --mixed_precision bf16 --num_cpu_threads_per_process 3"
)
TORCH = {"TORCHELASTIC_RUN_ID": "jobset"}
OMP = TORCH | {"OMP_NUM_THREADS": "1"}


def of(text, **more):
    """Return the translation of a command line, as a container has it."""
    return translate(shlex.split(text), **more)


@pytest.mark.parametrize(
    ("line", "command", "processes"),
    [
        ("torchrun train.py --lr 1", "python -u train.py --lr 1", 1),
        ("torchrun --nproc-per-node=8 train.py", "python -u train.py", 8),
        ("torchrun --nproc_per_node 8 -- train.py -m", "python -u train.py -m", 8),
        ("torchrun --nproc 8 train.py", "python -u train.py", 8),
        ("torchrun -m pkg.train --module x", "python -u -m pkg.train --module x", 1),
        ("torchrun --no-python ./run.sh a", "./run.sh a", 1),
        ("torchrun -r3 -t 3 --log-dir=/l train.py", "python -u train.py", 1),
        ("/opt/conda/bin/torchrun train.py", "/opt/conda/bin/python -u train.py", 1),
        (
            "python3 -X dev -m torch.distributed.run --standalone --nproc-per-node=2 t.py",
            "python3 -X dev -u t.py",
            2,
        ),
        (
            "python -m torch.distributed.launch --use-env --nproc_per_node=2 t.py",
            "python -u t.py",
            2,
        ),
        ("torchrun --rdzv-backend=c10d --rdzv-endpoint=h:1 --rdzv-id=1 t.py", "python -u t.py", 1),
        ("torchrun --node-rank=$(I) --master-addr=$(A) t.py $(B)", "python -u t.py $(B)", 1),
        ("accelerate launch --multi_gpu --num_processes 8 t.py", "python -u t.py", 8),
        (
            "accelerate launch --num_processes 8 --num_machines 2 --main_process_ip h -m pkg a",
            "python -u -m pkg a",
            4,
        ),
        ("accelerate-launch --num-processes=2 t.py", "python -u t.py", 2),
        ("python -m accelerate.commands.launch --num_processes 2 t.py", "python -u t.py", 2),
        ("python -m accelerate launch --num_processes 2 t.py", "python -u t.py", 2),
        (
            "deepspeed --num_gpus=4 --no_local_rank t.py --deepspeed d",
            "python -u t.py --deepspeed d",
            4,
        ),
        ("deepspeed --num_gpus 4 --no_local_rank --module pkg", "python -u -m pkg", 4),
        ("env A=1 nohup torchrun t.py", "python -u t.py", 1),
        ("tini -g -- torchrun t.py", "python -u t.py", 1),
        ("/jobset-agent/supervise torchrun t.py", "python -u t.py", 1),
        ("python -m jobsetpy.agent supervise -- torchrun t.py", "python -u t.py", 1),
    ],
)
def test_launcher_is_replaced(line, command, processes):
    """The supervisor starts the program itself, as many times as the launcher would in a pod."""
    found = of(line)

    assert list(found.command) == shlex.split(command)
    assert found.processes == processes
    assert {note for note in found.notes if "pod's log" not in note} == set()


@pytest.mark.parametrize(
    ("line", "more", "processes", "env"),
    [
        ("torchrun --nproc-per-node=gpu t.py", {"gpus": 8}, 8, OMP),
        ("torchrun --nproc-per-node=auto t.py", {}, None, OMP),
        ("torchrun --nproc-per-node=$(N) t.py", {"variables": {"N": "4"}}, 4, OMP),
        ("torchrun --nproc-per-node=$(N) t.py", {"variables": {"N": ""}}, None, OMP),
        ("torchrun --nproc-per-node=2 t.py", {"variables": {"OMP_NUM_THREADS": "7"}}, 2, TORCH),
        ("torchrun --nproc-per-node=0 t.py", {}, None, OMP),
        ("torchrun --nproc-per-node=65 t.py", {}, None, OMP),
        ("torchrun t.py", {"gpus": 8}, 1, TORCH),
        ("accelerate launch t.py", {"gpus": 8}, 8, OMP),
        ("accelerate launch --cpu t.py", {"gpus": 8}, None, OMP | {"ACCELERATE_USE_CPU": "true"}),
        ("accelerate launch --num_processes 7 --num_machines 2 t.py", {}, None, OMP),
        (
            f"{LAUNCH} --debug --gpu_ids 0,1 t.py",
            {},
            2,
            {
                "ACCELERATE_MIXED_PRECISION": "bf16",
                "ACCELERATE_DEBUG_MODE": "true",
                "CUDA_VISIBLE_DEVICES": "0,1",
                "OMP_NUM_THREADS": "3",
            }
            | TORCH,
        ),
        ("deepspeed t.py", {"gpus": 2}, 2, {}),
        ("deepspeed t.py", {}, None, {}),
    ],
)
def test_processes_and_variables_are_those_of_the_launcher(line, more, processes, env):
    """A number that only the machine knows is left to the user, and reported."""
    found = of(line, **more)

    assert found.processes == processes
    assert dict(found.env) == env
    assert any("processes" in note for note in found.notes) is (processes is None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --max-restarts=3 t.py", "the limit is spec.failurePolicy.maxRestarts"),
        ("torchrun --nnodes=1:4 t.py", "--nnodes 1:4: the number of processes is fixed"),
        ("torchrun --nnodes=3 t.py", "the ReplicatedJob has 2 pods"),
        ("torchrun --standalone t.py", "each of the 2 pods trains by itself"),
        ("torchrun --master-port=29400 t.py", "port 29400: the agent chooses another port"),
        ("torchrun --tee 3 --log-dir=/l t.py", "--log_dir, --tee: all output is in the pod's log"),
        ("torchrun --numa-binding=node t.py", "--numa_binding node: has no replacement"),
        ("torchrun --virtual-local-rank t.py", "--virtual_local_rank: has no replacement"),
        ("torchrun --run-path t.py", "main program"),
        ("python -m torch.distributed.launch t.py", "reads the variable LOCAL_RANK"),
        ("accelerate launch --config_file c.yaml t.py", "--config_file c.yaml: is not read here"),
        ("accelerate launch --use_fsdp t.py", "--use_fsdp: has no replacement"),
        ("accelerate launch --fsdp_offload_params true t.py", "--fsdp_offload_params true: has no"),
        ("deepspeed t.py", "reads the variable LOCAL_RANK"),
        ("deepspeed --hostfile /h t.py", "nothing needs SSH"),
        ("deepspeed --include=w:0 t.py", "--include w:0: has no replacement"),
    ],
)
def test_note_is_added_when_an_option_has_no_replacement(line, expected):
    """One sentence each; the rest is translated."""
    found = of(line, pods=2)

    assert found.command
    assert any(expected in note for note in found.notes), found.notes


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["torchrun", "--bogus", "t.py"], "its option --bogus is not known here"),
        (["torchrun", "--n", "2", "t.py"], "its option --n is not known here"),
        (["torchrun", "--nnodes"], "its option --nnodes has no value"),
        (["torchrun"], "it names no program"),
        (["accelerate", "launch", "-x", "t.py"], "its option -x is not known here"),
        (
            ["bash", "-lc", "cd /app && exec torchrun t.py"],
            "write its words as the container's command",
        ),
        (["/bin/sh", "-e", "-c", "python -m torch.distributed.run t.py"], "text of a shell"),
        (["torchrun", *["-t", "3"] * 100_000, "t.py"], "longer than"),
    ],
)
def test_note_has_the_reason_when_a_command_cannot_be_translated(words, expected):
    """The command is left unchanged; nothing is guessed."""
    found = translate(words)

    assert found.command == ()
    assert expected in found.notes[0]
    assert "not translated" in found.notes[0]


def test_long_values_of_variables_are_unknown():
    """A long command of references to a long value would become far longer."""
    words = ["torchrun", "--nproc-per-node=" + "$(A)" * 500, "t.py"]
    found = translate(words, variables={"A": "1" * 1_000_000})

    assert found.processes is None
    assert max(map(len, found.notes)) < 300


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["python", "train.py", "torchrun"],
        ["sh", "-c", "echo torchrun"],
        ["bash", "torchrun.sh"],
        ["accelerate", "config"],
        ["python", "-m", "torch.distributed.nothing"],
        ["sh", "-c"],
    ],
)
def test_other_commands_have_no_launcher(words):
    """The name alone, as an argument or in a text, is none."""
    assert translate(words) is None
