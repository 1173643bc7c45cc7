"""Options of launchers of distributed training, and what becomes of each.

Options are those of torch 2.15, accelerate 1.15 and DeepSpeed's runner, with underscores. In the
tables ``=`` marks an option with a value, ``.`` one that is translated or needs no replacement
(the supervisor numbers processes and finds the first one), ``>`` one about output, which is in the
pod's log; the others have no replacement. ``*`` stands for any ending.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Option(NamedTuple):
    """Option of a launcher: has it a value, and one of the marks above or ""."""

    has_value: bool
    mark: str


class Launcher(NamedTuple):
    """Launcher of distributed training.

    Args:
        name: its name, such as ``accelerate launch``.
        options: its options by name.
        short: names of its short options.
        counted_by: option with the number of processes.
        default: number of processes without the option; "" if the machine decides.
        no_rank: option without which the program gets an argument ``--local_rank``; "" if never.
    """

    name: str
    options: Mapping[str, Option]
    short: Mapping[str, str]
    counted_by: str
    default: str = ""
    no_rank: str = ""

    def find(self, given: str) -> tuple[str, Option | None]:
        """Return an option and its full name; as in argparse, its beginning is enough."""
        longer = [name for name in self.options if given and name.startswith(given)]
        name = longer[0].rstrip("*") if len(longer) == 1 and given not in longer else given
        for known, option in self.options.items():
            if known == name or (known.endswith("*") and name.startswith(known[:-1])):
                return name, option
        return name, None

    def mark(self, name: str) -> str:
        """Return the mark of an option."""
        option = self.find(name)[1]
        return "" if option is None else option.mark


def _options(text: str) -> dict[str, Option]:
    options = {}
    for word in text.split():
        name = word.rstrip("=.>")
        options[name] = Option("=" in word, word[len(name) :].strip("="))
    return options


_TORCH: Final = _options(
    "help. standalone. module. no_python. run_path. virtual_local_rank use_env. nnodes=. "
    "nproc_per_node=. rdzv_backend=. rdzv_endpoint=. rdzv_id=. rdzv_conf=. max_restarts=. "
    "monitor_interval=. start_method=. event_log_handler=> role=. log_dir=> redirects=> tee=> "
    "log_line_prefix_template=> local_ranks_filter=> duplicate_stdout_filters=> "
    "duplicate_stderr_filters=> node_rank=. master_addr=. master_port=. local_addr=. logs_specs=> "
    "numa_binding= signals_to_handle= shutdown_timeout= print_completion="
)
TORCHRUN: Final = Launcher(
    "torchrun",
    _TORCH,
    {"h": "help", "m": "module", "r": "redirects", "t": "tee"},
    "nproc_per_node",
    "1",
)
TORCH_LAUNCH: Final = TORCHRUN._replace(
    name="python -m torch.distributed.launch", no_rank="use_env"
)
ACCELERATE: Final = Launcher(
    "accelerate launch",
    _options(
        "help. quiet. cpu. multi_gpu. tpu enable_cpu_affinity dynamo_use_* dynamo_*= use_deepspeed "
        "use_fsdp use_parallelism_config use_megatron_lm same_network. module. no_python. "
        "tpu_cluster no_tpu_cluster tpu_use_sudo downcast_bf16 fp8_use_autocast_during_eval debug. "
        "config_file=. mixed_precision=. num_processes=. num_machines=. "
        "num_cpu_threads_per_process=. gpu_ids=. machine_rank=. main_process_ip=. "
        "main_process_port=. tee=> log_dir=> role=. rdzv_backend=. rdzv_conf=. max_restarts=. "
        "monitor_interval=. vm= env= main_training_function= deepspeed_*= fsdp_*= megatron_lm_*= "
        "fp8_*= parallelism_config_*= zero*= offload_*= gradient_*= aws_*= mpirun_hostfile="
    ),
    {"h": "help", "q": "quiet", "m": "module", "t": "tee"},
    "num_processes",
)
DEEPSPEED: Final = Launcher(
    "deepspeed",
    _options(
        "help. module. no_python. no_local_rank. no_ssh. no_ssh_check. force_multi. save_pid. "
        "elastic_training bind_cores_to_rank hostfile=. include= exclude= num_nodes=. "
        "min_elastic_nodes= max_elastic_nodes= num_gpus=. num_accelerators=. master_port=. "
        "master_addr=. node_rank=. launcher=. launcher_args=. enable_each_rank_log=> autotuning= "
        "comment= account= bind_core_list= ssh_port=. venv_script="
    ),
    {"h": "help", "H": "hostfile", "i": "include", "e": "exclude"},
    "num_gpus",
    no_rank="no_local_rank",
)

PROGRAMS: Final[Mapping[str, Launcher]] = {
    "torchrun": TORCHRUN,
    "accelerate-launch": ACCELERATE,
    "deepspeed": DEEPSPEED,
    "deepspeed.pt": DEEPSPEED,
}
MODULES: Final[Mapping[str, Launcher]] = {
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCH_LAUNCH,
    "accelerate.commands.launch": ACCELERATE,
    "deepspeed.launcher.runner": DEEPSPEED,
    "deepspeed": DEEPSPEED,
}
"""Launchers by program, and by Python module."""

VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "mixed_precision": ("ACCELERATE_MIXED_PRECISION", ""),
    "cpu": ("ACCELERATE_USE_CPU", "true"),
    "debug": ("ACCELERATE_DEBUG_MODE", "true"),
    "gpu_ids": ("CUDA_VISIBLE_DEVICES", ""),
}
"""Variables that replace options, and their values; "" for that of the option."""

_PORT: Final = (
    "port {}: the agent chooses another port for each epoch; to keep this one, set the variable "
    "MASTER_PORT"
)
NOTES: Final[Mapping[str, str]] = {
    "max_restarts": "--max_restarts {}: the limit is spec.failurePolicy.maxRestarts",
    "master_port": _PORT,
    "main_process_port": _PORT,
    "config_file": "--config_file {}: is not read here; write its num_processes and "
    "mixed_precision as above",
    "hostfile": "--hostfile: each pod starts its own processes, and nothing needs SSH",
    "run_path": "--run_path: the program runs as Python's main program",
}
"""Notes about options that are translated, with their values."""
