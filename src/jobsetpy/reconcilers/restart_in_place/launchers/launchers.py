"""Launchers of distributed training in a container's command, and what replaces them.

``torchrun``, ``accelerate launch`` and ``deepspeed`` start a pod's processes and number them. Under
restart in place the supervisor does that, with the annotation for several processes. A launcher
below it works, but each restart then imports the framework twice, one after the other, and there is
no Python command for which a standby process could be kept.

Everything here is a pure function of words: nothing is looked up, and no input raises an error.
Options are those of torch 2.15, accelerate 1.15 and DeepSpeed's runner.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from jobsetpy.api.python_command import split_python

MAX_PROCESSES: Final = 64
MAX_TEXT: Final = 2500
"""Maximum number of characters of a command that is parsed: a shell text of it takes 10 ms."""

_MAX_VALUE: Final = 100
"""Maximum number of characters of a variable's value that is used."""

_NAMES: Final = ("torchrun", "torch.distributed.", "accelerate", "deepspeed")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_OPERATORS: Final = ";&|()<>\n"
_HELPERS: Final = frozenset({"exec", "env", "nohup", "time", "then", "do", "else", "{", "!"})
"""Words that may come before a command."""

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(
    r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII
)
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)", re.ASCII)
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


_TOO_LONG: Final = f"the command is longer than {MAX_TEXT} characters"
_MAX_BEFORE: Final = 50


class _Options(NamedTuple):
    """Options of a launcher, with underscores: those without a value, and those with one."""

    flags: frozenset[str]
    values: frozenset[str]
    short: Mapping[str, str]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TORCHRUN: Final = _Options(
    _words("help standalone module no_python run_path virtual_local_rank use_env"),
    _words(
        "nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts "
        "monitor_interval start_method event_log_handler role log_dir redirects tee "
        "log_line_prefix_template local_ranks_filter duplicate_stdout_filters "
        "duplicate_stderr_filters node_rank master_addr master_port local_addr logs_specs "
        "numa_binding signals_to_handle shutdown_timeout print_completion"
    ),
    {"h": "help", "m": "module", "r": "redirects", "t": "tee"},
)
_ACCELERATE_NAME: Final = "accelerate launch"
_ACCELERATE: Final = _Options(
    _words(
        "help quiet cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic "
        "dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config "
        "use_megatron_lm same_network module no_python tpu_cluster no_tpu_cluster tpu_use_sudo "
        "downcast_bf16 fp8_use_autocast_during_eval debug"
    ),
    _words(
        "config_file mixed_precision num_processes num_machines num_cpu_threads_per_process "
        "dynamo_backend dynamo_mode gpu_ids machine_rank main_process_ip main_process_port tee "
        "log_dir role rdzv_backend rdzv_conf max_restarts monitor_interval vm env "
        "main_training_function deepspeed_config_file zero_stage offload_optimizer_device "
        "offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
        "gradient_accumulation_steps gradient_clipping zero3_init_flag zero3_save_16bit_model "
        "aws_access_key_id aws_secret_access_key mpirun_hostfile"
    ),
    {"h": "help", "q": "quiet", "m": "module", "t": "tee"},
)
_ACCELERATE_PREFIXES: Final = (
    *("deepspeed_", "fsdp_", "megatron_lm_", "fp8_", "parallelism_config_"),
)
"""Beginnings of options of accelerate that have a value."""

_DEEPSPEED: Final = _Options(
    _words(
        "help module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid "
        "elastic_training bind_cores_to_rank"
    ),
    _words(
        "hostfile include exclude num_nodes min_elastic_nodes max_elastic_nodes num_gpus "
        "num_accelerators master_port master_addr node_rank launcher launcher_args "
        "enable_each_rank_log autotuning comment account bind_core_list ssh_port venv_script"
    ),
    {"h": "help", "H": "hostfile", "i": "include", "e": "exclude"},
)
_NUMBERED: Final = _words(
    "node_rank master_addr rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone local_addr "
    "machine_rank main_process_ip multi_gpu same_network no_ssh no_ssh_check num_machines "
    "num_nodes use_env quiet role start_method monitor_interval help no_local_rank"
)
"""Options that need no replacement: the supervisor numbers processes and finds the first one, or
they belong to the launcher itself."""

_OUTPUT: Final = _words(
    "log_dir redirects tee log_line_prefix_template local_ranks_filter duplicate_stdout_filters "
    "duplicate_stderr_filters enable_each_rank_log logs_specs event_log_handler"
)

_HANDLED: Final = (
    _NUMBERED
    | _OUTPUT
    | _words(
        "nnodes nproc_per_node num_processes num_gpus num_accelerators module no_python "
        "max_restarts num_cpu_threads_per_process mixed_precision cpu debug gpu_ids master_port "
        "main_process_port config_file hostfile run_path launcher launcher_args ssh_port "
        "force_multi save_pid"
    )
)
"""Options that are translated, noted, or need no replacement."""

_REMARKS: Final = {
    "hostfile": "--hostfile: each pod starts its own processes, and nothing needs SSH",
    "run_path": "--run_path: the program runs as Python's main program",
}

_PROGRAMS: Final = {
    "torchrun": "torchrun",
    "accelerate-launch": _ACCELERATE_NAME,
    "deepspeed": "deepspeed",
    "deepspeed.pt": "deepspeed",
}
_MODULES: Final = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "python -m torch.distributed.launch",
    "accelerate.commands.launch": _ACCELERATE_NAME,
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}
"""Names of launchers, by program and by Python module."""
_ACCELERATE_MODULES: Final = frozenset({"accelerate", "accelerate.commands.accelerate_cli"})


@attrs.frozen(kw_only=True)
class Translation:
    """Replacement of a launcher.

    Args:
        launcher: its name, such as ``accelerate launch``.
        command: the worker's command; empty if it cannot be translated, and ``notes`` has why.
        processes: number of processes in each pod; ``None`` if the command does not say it.
        env: variables that the launcher would set, other than those of the supervisor.
        folder: working directory from a ``cd``; "" for none.
        max_restarts: the launcher's own limit; 0 for none.
        notes: what has no replacement, or needs a decision, one sentence each.
    """

    launcher: str
    command: tuple[str, ...] = ()
    processes: int | None = None
    env: Mapping[str, str] = attrs.field(factory=dict)
    folder: str = ""
    max_restarts: int = 0
    notes: tuple[str, ...] = ()

    @property
    def preloads(self) -> bool:
        """Return True if a standby process can be kept for the command."""
        return bool(self.command) and not isinstance(split_python(self.command), str)


def translate(
    words: Sequence[str],
    *,
    variables: Mapping[str, str] | None = None,
    gpus: int = 0,
    pods: int = 0,
) -> Translation | None:
    """Return what replaces the launcher in a container's command; ``None`` if there is none.

    Args:
        words: ``command`` and ``args`` of the container.
        variables: its variables, "" for a value that is not known.
        gpus: accelerators of the container, as its resources say; 0 if it has none.
        pods: number of pods of the ReplicatedJob; 0 if unknown.
    """
    if not any(name in word for word in words for name in _NAMES):
        return None
    known = {
        name: value if len(value) <= _MAX_VALUE else "" for name, value in (variables or {}).items()
    }
    command = _unsupervised(words)
    text = _shell_text(command)
    if text is None:
        if sum(map(len, command)) + len(command) > MAX_TEXT:
            return _too_long(command)
        launch = _launch_in(command, {})
        return None if launch is None else _translated(launch, known, gpus, pods)
    if len(text) > MAX_TEXT:
        return _unparsed(text, _TOO_LONG)
    try:
        segments = list(_segments(text))
    except ValueError as error:
        return _unparsed(text, f"the shell text cannot be read ({str(error).lower()})")
    shell = _Shell(known)
    for at, segment in enumerate(segments):
        launch = _launch_in(segment, shell.env)
        if launch is not None:
            rest = [each for each in segments[at + 1 :] if each]
            notes = [*shell.notes, *(_also(each) for each in rest)]
            launch = launch._replace(env={**shell.env, **launch.env}, from_shell=True)
            found = _translated(launch, {**known, **shell.env}, gpus, pods)
            folder = shell.folder if found.command else ""
            return attrs.evolve(found, folder=folder, notes=(*found.notes, *notes))
        shell.take(segment)
    return None


class _Launch(NamedTuple):
    """A launcher and its arguments, and the variables that are set before it."""

    name: str
    interpreter: list[str]
    arguments: list[str]
    env: dict[str, str]
    from_shell: bool = False


class _Shell:
    """Commands of a shell text that come before the launcher."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self.env: dict[str, str] = {}
        self.folder = ""
        self.notes: list[str] = []

    def take(self, words: list[str]) -> None:
        """Process a command: variables, a folder, options of the shell; the others are noted."""
        if not words or words[0] in {"set", ":", "true"}:
            return
        given = words[1:] if words[0] == "export" else words
        found = [_ASSIGNMENT.fullmatch(word) for word in given]
        if found and all(each and "$" not in each[2] and "`" not in each[2] for each in found):
            self.env.update((each[1], each[2]) for each in found if each)
        elif words[0] == "cd" and len(words) == 2 and words[1].startswith("/"):
            if "$" in words[1]:
                self.notes.append(_also(words))
            self.folder = words[1]
        else:
            self.notes.append(_also(words))


def _also(words: Sequence[str]) -> str:
    return (
        f"the shell also runs {_short(' '.join(words))!r}: do that in the image, in an init "
        "container, or in the program"
    )


def _short(text: str, longest: int = 80) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _too_long(words: Sequence[str]) -> Translation | None:
    """Return a note if the beginning of a long command has a launcher."""
    launch = _launch_in([word[:MAX_TEXT] for word in words[:_MAX_BEFORE]], {})
    if launch is None:
        return None
    return Translation(launcher=launch.name, notes=(f"{_TOO_LONG}, and is not translated",))


def _unparsed(text: str, why: str) -> Translation | None:
    name = next((name for name in _NAMES if name in text), "")
    names = {"torch.distributed.": "torchrun", "accelerate": _ACCELERATE_NAME}
    return Translation(launcher=names.get(name, name), notes=(f"{why}, and is not translated",))


def _unsupervised(words: Sequence[str]) -> list[str]:
    """Return the words without a supervisor before them, injected or written out."""
    for at, word in enumerate(words[:8]):
        if word.rpartition("/")[2] == "supervise":
            rest = list(words[at + 1 :])
            return rest[1:] if rest[:1] == ["--"] else rest
    return list(words)


def _shell_text(words: Sequence[str]) -> str | None:
    """Return the text that a shell runs because of ``-c``; ``None`` for other commands."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    is_text = False
    left = iter(words[1:])
    for word in left:
        if word[:1] not in {"-", "+"} or word in {"-", "--"}:
            return word if is_text else None
        if not word.startswith("--"):
            is_text = is_text or "c" in word
            if word[-1] in "oO":
                next(left, None)
    return None


def _segments(text: str) -> Iterator[list[str]]:
    """Iterate over the commands of a shell text, without what follows a redirection.

    Raises:
        ValueError: a quotation is not closed, or there is a command substitution.
    """
    text = _COMMENT.sub("", text.replace("\\\n", " "))
    text = _REFERENCE.sub(r"${\1}", text)  # the kubelet's form, whose parentheses are operators
    if "`" in text or "$(" in text:
        raise ValueError("it has a command substitution")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    skip = False
    for token in lexer:
        if token and all(c in _OPERATORS for c in token):
            if "<" in token or ">" in token:
                skip = True
                if words and words[-1] in {"1", "2"}:
                    words.pop()
                continue
            yield words
            words = []
        elif skip:
            skip = False
        else:
            words.append(token)
    yield words


def _launch_in(words: Sequence[str], env: Mapping[str, str]) -> _Launch | None:
    """Return the launcher that a command starts with, after variables and small helpers."""
    left, own = _without_helpers(words, env)
    if not left:
        return None
    path, _, name = left[0].rpartition("/")
    arguments = left[1:]
    if name == "accelerate" and arguments[:1] == ["launch"]:
        name, arguments = "accelerate-launch", arguments[1:]
    if name in _PROGRAMS:
        python = [f"{path}/python" if path else "python"]
        return _Launch(_PROGRAMS[name], python, arguments, own)
    parts = split_python(left)
    if isinstance(parts, str) or parts.program[0] != "-m":
        return None
    module, *arguments = parts.program[1:] or ("",)
    if module in _ACCELERATE_MODULES and arguments[:1] == ["launch"]:
        module, arguments = "accelerate.commands.launch", arguments[1:]
    if module not in _MODULES:
        return None
    return _Launch(_MODULES[module], parts.interpreter, arguments, own)


def _without_helpers(
    words: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return a command without what may come before it, and the variables that are set."""
    left, own = list(words), dict(env)
    while left:
        name = left[0].rpartition("/")[2]
        found = _ASSIGNMENT.fullmatch(left[0])
        if found and "/" not in found[1]:
            own[found[1]] = found[2]
        elif name in {"tini", "dumb-init", "catatonit"}:
            while len(left) > 1 and left[1].startswith("-"):
                del left[1]
        elif name not in _HELPERS:
            break
        del left[0]
    return left, own


def _parse(words: Sequence[str], known: _Options) -> tuple[dict[str, str], list[str]] | str:
    """Return the options, with "" for flags, and the program with its arguments.

    Returns:
        As a text, the reason why the words cannot be parsed.
    """
    options: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            left.insert(0, word)
            break
        given, equals, value = word.partition("=")
        attached = ""
        if word.startswith("--"):
            name = _full_name(given[2:].replace("-", "_"), known)
        else:
            name = known.short.get(word[1], "")
            given, attached = word[:2], word[2:]
            equals, value = ("=", attached.removeprefix("=")) if attached else ("", "")
        if name in known.flags:
            options[name] = ""
        elif name not in known.values and not (
            known is _ACCELERATE and name.startswith(_ACCELERATE_PREFIXES)
        ):
            return f"its option {_short(given)} is not known here"
        elif equals:
            options[name] = value
        elif left:
            options[name] = left.pop(0)
        else:
            return f"its option {_short(given)} has no value"
    return (options, left) if left else "it names no program"


def _full_name(name: str, known: _Options) -> str:
    """Return the option that a name stands for; as in argparse, its beginning is enough."""
    every = known.flags | known.values
    if name in every:
        return name
    longer = [each for each in every if name and each.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _translated(launch: _Launch, variables: Mapping[str, str], gpus: int, pods: int) -> Translation:
    known = {"deepspeed": _DEEPSPEED, _ACCELERATE_NAME: _ACCELERATE}.get(launch.name, _TORCHRUN)
    parsed = _parse([_resolved(word, variables) for word in launch.arguments], known)
    if isinstance(parsed, str):
        note = f"{launch.name} is not translated: {parsed}"
        return Translation(launcher=launch.name, notes=(note,))
    options, rest = parsed
    # The program's own words keep their variables: the kubelet resolves them.
    words = launch.arguments[len(launch.arguments) - len(rest) :]
    notes = [
        f"{_short(word)!r} may begin a comment, and is translated as an argument"
        for word in words
        if launch.from_shell and word.startswith("#")
    ]
    processes = _processes(launch.name, options, gpus, notes)
    _note_nodes(options, pods, notes)
    env = dict(launch.env)
    _note_options(launch, options, env, notes)
    threads = options.get("num_cpu_threads_per_process", "1")
    is_default = "OMP_NUM_THREADS" not in variables and launch.name != "deepspeed"
    if processes != 1 and is_default and _NUMBER.fullmatch(threads):
        env.setdefault("OMP_NUM_THREADS", threads)
    is_elastic = launch.name != "deepspeed" and (launch.name != _ACCELERATE_NAME or processes != 1)
    if "TORCHELASTIC_RUN_ID" not in variables and is_elastic:
        # Lightning takes ranks from the environment where it finds this variable of torchrun.
        env.setdefault("TORCHELASTIC_RUN_ID", "jobset")
    if launch.from_shell:
        words = [_for_kubelet(word, variables, notes) for word in words]
    python = list(launch.interpreter)
    if "-u" not in python:
        python.append("-u")
    if "module" in options:
        python.append("-m")
    limit = options.get("max_restarts", "")
    return Translation(
        launcher=launch.name,
        command=tuple(words if "no_python" in options else [*python, *words]),
        processes=processes,
        env=env,
        max_restarts=int(limit) if _NUMBER.fullmatch(limit) else 0,
        notes=tuple(notes),
    )


def _resolved(word: str, variables: Mapping[str, str]) -> str:
    """Return a word with the values of variables that are known."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2] or found[3]
        return variables.get(name) or found[0]

    return _VARIABLE.sub(value, word) if "$" in word else word


def _names_in(word: str) -> list[str]:
    return ["".join(found) for found in _VARIABLE.findall(word)]


def _for_kubelet(word: str, variables: Mapping[str, str], notes: list[str]) -> str:
    """Return a shell's word as a word of a command, whose variables the kubelet resolves."""

    def named(found: re.Match[str]) -> str:
        name = found[2] or found[3]
        return f"$({name})" if name in variables else found[0]

    done = _VARIABLE.sub(named, word)
    several = any(len(variables.get(n, "").split()) > 1 for n in _names_in(word))
    if (
        several
        or "`" in done
        or "$" in _VARIABLE.sub(lambda found: "" if found[1] else found[0], done)
    ):
        notes.append(f"the shell would expand {_short(word)!r}: write its value")
    return done


def _processes(name: str, options: Mapping[str, str], gpus: int, notes: list[str]) -> int | None:
    """Return the number of processes of a pod; ``None`` with a note if it is not known."""
    machines = options.get("num_machines", "1")
    if name == _ACCELERATE_NAME:
        option, text = "num_processes", options.get("num_processes", "")
    elif name == "deepspeed":
        text = options.get("num_gpus", options.get("num_accelerators", ""))
        option = "num_gpus"
    else:
        option, text = "nproc-per-node", options.get("nproc_per_node", "1")
    if text in {"", "gpu", "auto", "-1"} and gpus and "cpu" not in options:
        text, machines = str(gpus), "1"
    if not _NUMBER.fullmatch(text) or not _NUMBER.fullmatch(machines):
        said = f"--{option} {_short(text, 20)}" if text else f"no --{option}"
        notes.append(f"{said}: write the number of processes of a pod into the annotation")
        return None
    count, left = divmod(int(text), int(machines))
    if left or not 1 <= count <= MAX_PROCESSES:
        where = f"in each of {machines} pods" if int(machines) > 1 else "in a pod"
        notes.append(f"--{option} {text}: there are 1 to {MAX_PROCESSES} processes {where}")
        return None
    return count


def _note_nodes(options: Mapping[str, str], pods: int, notes: list[str]) -> None:
    """Note a number of nodes that differs from that of the pods."""
    for name in ("nnodes", "num_machines", "num_nodes"):
        text = options.get(name, "")
        if ":" in text:
            notes.append(
                f"--{name} {_short(text, 20)}: the number of processes is fixed; a lost pod is "
                "replaced, and the others wait for it"
            )
        elif text and pods and text != str(pods):
            notes.append(
                f"--{name} {_short(text, 20)}: the ReplicatedJob has {pods} pods, and all of them "
                "take part"
            )
    if "standalone" in options and pods > 1:
        notes.append(
            f"--standalone: each of the {pods} pods trains by itself; under the supervisor their "
            "ranks are one world"
        )


def _note_options(
    launch: _Launch, options: Mapping[str, str], env: dict[str, str], notes: list[str]
) -> None:
    """Translate the other options into variables or notes."""
    if "mixed_precision" in options:
        env["ACCELERATE_MIXED_PRECISION"] = options["mixed_precision"]
    if "cpu" in options:
        env["ACCELERATE_USE_CPU"] = "true"
    if "debug" in options:
        env["ACCELERATE_DEBUG_MODE"] = "true"
    if options.get("gpu_ids", "all") != "all":
        env["CUDA_VISIBLE_DEVICES"] = options["gpu_ids"]
    if _NUMBER.fullmatch(options.get("max_restarts", "")):
        notes.append(
            f"--max_restarts {options['max_restarts']}: the limit is spec.failurePolicy.maxRestarts"
        )
    port = options.get("master_port", options.get("main_process_port"))
    if port:
        notes.append(
            f"port {_short(port, 20)}: the agent chooses another port for each epoch; to keep this "
            "one, set the variable MASTER_PORT"
        )
    output = sorted(_OUTPUT & set(options))
    if output:
        notes.append(f"--{', --'.join(output)}: all output is in the pod's log")
    if "config_file" in options:
        notes.append(
            f"--config_file {_short(options['config_file'])}: is not read here; write its "
            "num_processes and mixed_precision as above"
        )
    passes_rank = (launch.name == "deepspeed" and "no_local_rank" not in options) or (
        launch.name.endswith("torch.distributed.launch") and "use_env" not in options
    )
    if passes_rank:
        notes.append("the program gets no argument --local_rank: it reads the variable LOCAL_RANK")
    notes += [text for name, text in _REMARKS.items() if name in options]
    notes += [
        f"--{name}{' ' if value else ''}{_short(value, 40)}: has no replacement here; set it up in "
        "the program"
        for name, value in options.items()
        if name not in _HANDLED
    ]
