"""Mistakes with the library, one per row, and the sentence that reports each.

A program is the content of a beginner's ``program.py``. It is run as by ``jobsetpy run``, against a
world in memory; its author sees standard error, exceptions and the log.
"""

import asyncio
import importlib
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
import structlog

from jobsetpy.api.quantities import quantity
from jobsetpy.app import main, process
from jobsetpy.app.user_programs import (
    ProgramError,
    checked,
    ending,
    load,
    report,
    traceback_of,
)
from jobsetpy.errors import UnauthorizedError
from jobsetpy.manager import Manager
from jobsetpy.testing import RecordingClient, VirtualTime, World

START = """
import asyncio, time
from jobsetpy import runtime as rt

async def idle(obj): return rt.Result.done()

class Mine:
    async def reconcile(self, request): pass

"""
USUAL = """
def setup(manager):
    maps = manager.informer(rt.ConfigMap)
    async def reconcile(obj):
        client = manager.client
        {body}
        return rt.Result.done()
    manager.add(rt.controller_for(maps, reconcile, name="maps", when=rt.resource_version_changed))
"""
WIDGET = """
from typing import ClassVar
@rt.resource("example.com", "v1", "Widget", "widgets")
@rt.model
class Widget:
    RESOURCE: ClassVar[rt.ResourceInfo]
    metadata: rt.ObjectMeta = rt.ObjectMeta()
    size: int = 0
"""


def body(*lines: str) -> str:
    """A program whose reconcile has these lines."""
    return USUAL.replace("{body}", "\n        ".join(lines))


def in_setup(*lines: str) -> str:
    """A program whose setup has these lines."""
    return "def setup(manager):\n" + textwrap.indent("\n".join(lines), "    ")


BEFORE_THE_START = {
    "no function named": ("program", "", "'program' is not MODULE:FUNCTION, such as"),
    "no module named": (":setup", "", "':setup' is not MODULE:FUNCTION, such as"),
    "a file": ("program.py:setup", "", "is a file, not a module: write program:setup"),
    "a path": ("./app/program:setup", "", "is a file, not a module: write app.program:setup"),
    "a missing module": ("nothing_here:setup", "", "there is no module 'nothing_here' in"),
    "a misspelt keyword of a field": (
        "program:setup",
        "size: int = rt.field(default=0, minimun=1)",
        "field has no keyword 'minimun': did you mean 'minimum'?",
    ),
    "a library that is not installed": (
        "program:setup",
        "import not_installed_library",
        "importing 'program' failed: No module named 'not_installed_library'",
    ),
    "a syntax error": (
        "program:setup",
        "def setup(manager)\n",
        "failed: SyntaxError: expected ':'",
    ),
    "an error of the import": ("program:setup", "1 / 0", "failed: ZeroDivisionError: division"),
    "a wrong name": (
        "program:stup",
        in_setup("pass"),
        "'program' has no 'stup': did you mean 'setup'?",
    ),
    "no such name": ("program:xyz", "a = 1", "'program' has no 'xyz'"),
    "a class": (
        "program:Setup",
        "class Setup:\n    pass",
        "program:Setup is a class: it has to be",
    ),
    "a value": ("program:a", "a = 1", "program:a is int 1: it has to be a function that takes the"),
    "no argument": (
        "program:setup",
        "def setup():\n    pass",
        "program:setup() cannot be called with the manager alone (too many positional arguments)",
    ),
    "two arguments": (
        "program:setup",
        "def setup(manager, client):\n    pass",
        "program:setup(manager, client) cannot be called with the manager alone (missing a",
    ),
}

IN_SETUP = {
    "an error": (in_setup("{}['x']"), "program:setup failed: KeyError: 'x'"),
    "an error after an await": (
        "async def setup(manager):\n    await asyncio.sleep(0)\n    raise ValueError('broken')",
        "program:setup failed: ValueError: broken",
    ),
    "a returned controller": (
        in_setup("return rt.controller_for(manager.informer(rt.Pod), idle, name='pods')"),
        "program:setup returned <Controller 'pods' with 1 watches>, which nothing runs: call",
    ),
    "two controllers of one name": (
        in_setup(
            "for kind in (rt.Pod, rt.Job):",
            "    manager.add(rt.controller_for(manager.informer(kind), idle, name='mine'))",
        ),
        "a controller named 'mine' exists already: give each its own name",
    ),
    "a controller added twice": (
        in_setup(
            "one = rt.controller_for(manager.informer(rt.Pod), idle, name='mine')",
            "manager.add(one)",
            "manager.add(one)",
        ),
        "controller 'mine' was added already",
    ),
    "a class instead of a controller": (
        in_setup("manager.add(rt.Controller)"),
        "a manager runs Controllers and other Runnables, not <class",
    ),
    "a function instead of a controller": (
        in_setup("manager.add(print)"),
        "a manager runs Controllers and other Runnables, not <built-in function print>",
    ),
    "a reconcile that is not async": (
        in_setup(
            "def f(obj): return rt.Result.done()",
            "manager.add(rt.controller_for(manager.informer(rt.Pod), f, name='pods'))",
        ),
        "f has to be `async def`: it runs on the event loop, which nothing may block",
    ),
    "a class instead of a reconciler": (
        in_setup("manager.add(rt.Controller(name='a', reconciler=Mine, watches=[]))"),
        "a controller needs an instance as its reconciler: Mine(...), not the class Mine",
    ),
    "a reconciler without reconcile": (
        in_setup("manager.add(rt.Controller(name='a', reconciler=object(), watches=[]))"),
        "a reconciler needs `async def reconcile(self, request)`",
    ),
    "one watch instead of a list": (
        in_setup(
            "watch = rt.Watch(manager.informer(rt.Pod), rt.enqueue_self)",
            "manager.add(rt.Controller(name='a', reconciler=Mine(), watches=watch))",
        ),
        "a controller needs a list of watches, not one Watch: watches=[Watch(...)]",
    ),
    "a class instead of an informer": (
        in_setup("rt.Watch(rt.Pod, rt.enqueue_self)"),
        "not the class Pod: manager.informer(Pod)",
    ),
    "a store instead of an informer": (
        in_setup("rt.Watch(manager.informer(rt.Pod).store, rt.enqueue_self)"),
        "not its store",
    ),
    "a factory instead of a handler": (
        in_setup("rt.Watch(manager.informer(rt.Pod), rt.enqueue_owner)"),
        "what enqueue_owner(Owner) returns",
    ),
    "an async handler": (
        in_setup("async def f(event): return []", "rt.Watch(manager.informer(rt.Pod), f)"),
        "must not be async",
    ),
    "a class without a kind": (
        in_setup("manager.informer(Mine)"),
        "Mine stands for no kind of the API: decorate a class with runtime.resource",
    ),
    "a finalizer without a domain": (
        in_setup("rt.finalizer('mine')"),
        "a finalizer is called DOMAIN/NAME, such as example.com/bucket, not 'mine'",
    ),
    "a text as delay": (
        in_setup("rt.Result.requeue_after('5')"),
        "a Result's delay is a timedelta or a number of seconds, not '5'",
    ),
    "no delay": (
        in_setup("rt.Result.requeue_after(None)"),
        "requeue_after needs a timedelta or a number of seconds; use done() for none",
    ),
    "a namespace of a cluster-scoped kind": (
        in_setup("manager.informer(rt.Node, namespace='a')"),
        "in no namespace",
    ),
}

AT_WORK = {
    "no controller": (in_setup("pass"), "the manager has no controller, so it reconciles nothing"),
    "a forgotten return": (
        body("return None"),
        "a reconciler has to return a Result, not None: end with `return Result.done()`",
    ),
    "another result": (body("return True"), "a reconciler has to return a Result, not True"),
    "a forgotten await of the result": (
        body("async def other(): return rt.Result.done()", "return other()"),
        "a reconciler has to return a Result: `await` is missing in front of <coroutine",
    ),
    "a forgotten await of a read": (
        body("found = client.get(rt.ConfigMap, 'default', 'a')", "found.metadata"),
        "an `await` is missing in front of a call",
    ),
    "blocking": (body("time.sleep(0.6)"), "a reconcile blocked the event loop: what takes long"),
    "an error": (body("{}['x']"), "reconcile failed"),
    "a changed object of the cache": (
        body("obj.metadata = None"),
        "objects of the cache are shared and cannot be changed: make a changed copy",
    ),
    "changed labels of the cache": (
        body("obj.metadata.labels['a'] = 'b'"),
        "cannot be changed: change a copy (copy.deepcopy), and write with the client",
    ),
    "a stale write": (
        body(
            "await client.merge_patch(rt.ConfigMap, 'default', 'a', "
            "{'metadata': {'resourceVersion': '1', 'labels': {'a': 'b'}}})"
        ),
        "the object changed meanwhile, trying again",
    ),
    "an existing object": (
        body("await client.create(rt.ConfigMap, 'default', {'metadata': {'name': 'a'}})"),
        "already exists",
    ),
    "a new object without a namespace": (
        body("await client.create(rt.ConfigMap, '', {'metadata': {'name': 'b'}})"),
        "configmaps are in a namespace: name the one in which to create 'ConfigMap'",
    ),
    "an object without a name": (
        body("await client.get(rt.ConfigMap, 'default', '')"),
        "configmaps needs a namespace and a name, not 'default' and ''",
    ),
    "an object instead of JSON": (
        body("await client.create(rt.ConfigMap, 'default', obj)"),
        "a body is JSON data such as {'spec': ...}, not ConfigMap: runtime.to_json(...)",
    ),
    "a write of an unknown kind": (
        WIDGET + body("await client.create(Widget, 'default', {'metadata': {'name': 'b'}})"),
        "the API server does not know this kind: is its CustomResourceDefinition installed?",
    ),
    "an undeclared index": (
        body("manager.informer(rt.ConfigMap).store.by_index('mine', 'x')"),
        "mine",
    ),
    "an informer after the start": (body("manager.informer(rt.Pod)"), "started"),
    "requeue without delay": (
        "TIMES = []\n"
        + body("TIMES.append(1)", "if len(TIMES) < 150: return rt.Result.requeue_after(0)"),
        "each reconcile of this object asks for another one without delay",
    ),
    "a write that causes the next": (
        body(
            "count = int(obj.metadata.labels.get('n', '0')) + 1",
            "if count > 150: return rt.Result.done()",
            "await client.merge_patch(rt.ConfigMap, obj.metadata.namespace, obj.metadata.name,"
            " {'metadata': {'labels': {'n': str(count)}}})",
        ),
        "each reconcile of this object writes, and its write causes the next one",
    ),
    "a finalizer that is never removed": (
        "HELD = rt.finalizer('example.com/held')\n"
        + body(
            "await HELD.ensure(client, obj)", "await client.delete(rt.ConfigMap, 'default', 'a')"
        ),
        "has a finalizer of this program, and is not given to reconcile",
    ),
    "a missing CRD": (
        WIDGET
        + in_setup(
            "manager.add(rt.controller_for(manager.informer(Widget), idle, name='widgets'))"
        ),
        "is the CustomResourceDefinition widgets.example.com installed, with version v1 served?",
    ),
    "an informer that nothing runs": (
        in_setup(
            "from jobsetpy.informers import SharedInformer",
            "pods = SharedInformer(manager.client, rt.Pod)",
            "manager.add(rt.controller_for(pods, idle, name='pods'))",
        ),
        "take informers from manager.informer(...), or add a Runnable that runs this one",
    ),
}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a function that writes program.py, which is imported from the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *sys.path])
    monkeypatch.setattr(process.logging, "configure", lambda **_: None)

    def write(text: str) -> None:
        sys.modules.pop("program", None)
        (tmp_path / "program.py").write_text(START + text)
        importlib.invalidate_caches()

    yield write
    sys.modules.pop("program", None)


def everything(lines: list[dict], error: BaseException | None) -> str:
    """Text of the log, and of the exception that ended the manager."""
    shown = []
    for line in lines:
        shown += [str(value) for name, value in line.items() if name != "exc_info"]
        if "exc_info" in line:
            shown += traceback.format_exception(line["exc_info"])
    if error is not None:
        ends = ending(error)
        assert ends is not None
        shown.append(ends[0])
    return "\n".join(shown)


def run(setup, *, seconds: float = 300.0, prepare=lambda world: None) -> str:
    """Run a program in virtual time; return the text that its author sees."""
    world = World()
    world.create("configmaps", {"metadata": {"name": "a", "labels": {"l": "1"}}})
    prepare(world)
    failure: BaseException | None = None

    async def scenario() -> None:
        client = RecordingClient(world)
        manager = Manager(client)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await checked(setup, "program:setup")(manager)
        await manager.run(stop)

    with structlog.testing.capture_logs() as lines:
        try:
            VirtualTime().run(scenario())
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - it is checked
            failure = error
    return everything(lines, failure)


@pytest.mark.parametrize("mistake", list(BEFORE_THE_START))
def test_a_mistake_before_the_start_is_one_sentence(mistake, program, capsys):
    """Exit code 2, the sentence last, and no frame of the library or of the import system."""
    target, text, sentence = BEFORE_THE_START[mistake]
    program(text)

    assert main.main(["run", target]) == main.EXIT_USAGE
    error = capsys.readouterr().err
    assert sentence in error.splitlines()[-1]
    assert error.splitlines()[-1].startswith("jobsetpy run: ")
    assert "user_programs.py" not in error
    assert "importlib" not in error


@pytest.mark.parametrize("mistake", list(IN_SETUP))
def test_a_mistake_in_setup_is_one_sentence(mistake, program, capsys):
    """The traceback has only the program's own frames."""
    text, sentence = IN_SETUP[mistake]
    program(text)

    with pytest.raises(ProgramError) as caught:
        VirtualTime().run(called(load("program:setup")))
    report("run", caught.value, caught.value.cause)
    lines = capsys.readouterr().err.splitlines()
    assert sentence in lines[-1]
    if caught.value.cause is not None:
        places = [line for line in lines if line.startswith('  File "')]
        assert places
        assert all("program.py" in place for place in places)


async def called(setup) -> None:
    await checked(setup, "program:setup")(Manager(RecordingClient(World())))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("mistake", list(AT_WORK))
def test_a_mistake_at_work_is_one_sentence(mistake, program):
    """The sentence is in the log, or in the error that ends the manager."""
    text, sentence = AT_WORK[mistake]
    program(text)

    assert sentence in run(load("program:setup"))


def widgets(manager) -> None:
    from jobsetpy import runtime as rt

    async def reconcile(obj):
        return rt.Result.done()

    manager.add(rt.controller_for(manager.informer(rt.ConfigMap), reconcile, name="maps"))


def refused(status: int) -> str:
    """Output of a program whose lists and watches are refused."""

    def refuse(world: World) -> None:
        for verb in ("list", "watch"):
            world.faults.status(status, verb=verb, resource="configmaps", count=1000)

    return run(widgets, prepare=refuse)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (401, "The API server does not accept the credentials: has the token expired"),
        (403, "The credentials may not list and watch configmaps; the ClusterRole bound to them"),
    ],
)
def test_a_refused_list_is_one_sentence(status, sentence):
    """The token is invalid, or the role has no rule for the kind."""
    assert sentence in refused(status)


def test_advice_is_repeated_with_the_time_left():
    """A start that waits logs every 15 s what is missing, and when the manager ends."""
    output = refused(403)
    assert output.count("the caches are not complete; the manager ends unless") == 7
    assert [left in output for left in ("\n105\n", "\n60\n", "\n15\n")] == [True, True, True]
    assert output.count("needs this rule:") >= 8


@pytest.mark.parametrize(
    ("flags", "text", "sentence"),
    [
        (["--kubeconfig", "missing.yaml"], "", "missing.yaml"),
        (["--kubeconfig", "bad.yaml"], "a: [", "bad.yaml"),
        (["--kubeconfig", "empty.yaml"], "{}", "empty.yaml"),
        ([], "", "no cluster: no kubeconfig given, $KUBECONFIG unset, not in a Pod"),
    ],
)
def test_a_missing_cluster_is_one_sentence(flags, text, sentence, program, capsys, monkeypatch):
    """There is no traceback."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    program(body("pass"))
    if text:
        Path(flags[1]).write_text(text)

    assert main.main(["run", "program:setup", *flags]) == process.EXIT_FAILED
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert len(error.splitlines()) <= 3


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(98, "address already in use"), "cannot serve: address already in use: choose an"),
        (ExceptionGroup("g", [UnauthorizedError(401, "Unauthorized", "no")]), "no"),
    ],
)
def test_an_error_that_ends_the_manager_is_one_sentence(error, sentence):
    """Examples are a port in use, and an error in a group of one."""
    text, details = ending(error)

    assert sentence in text
    assert details is None


def test_a_defect_of_the_library_keeps_its_traceback():
    """Frames of the library are removed only from tracebacks with other frames."""
    with pytest.raises(ValueError, match="not a quantity") as caught:
        quantity("x")
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)

    assert any("quantities.py" in line for line in traceback_of(error))


def test_there_are_fifty_rows():
    """No row may be lost."""
    assert len(BEFORE_THE_START) + len(IN_SETUP) + len(AT_WORK) >= 50
