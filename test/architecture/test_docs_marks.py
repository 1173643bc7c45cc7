"""Commands in the documentation are marked as CONTRIBUTING.md describes."""

import pytest

from support.docs import docs_kit


def page(tmp_path, text):
    path = docs_kit.ROOT / "docs/how-to/imagined.md"
    return tuple(docs_kit._blocks(path, text.splitlines()))


@pytest.mark.parametrize("path", [*docs_kit.PAGES, docs_kit.README], ids=lambda path: path.stem)
def test_every_command_is_marked(path):
    """A command cannot be added without a decision about where it is run."""
    docs_kit.read(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```sh\nls\n```", ":1: no mark"),
        ("<!-- run: moon -->\n```sh\nls\n```", ":1: .* is no mark"),
        ("<!-- run: none -->\n```sh\nls\n```", ":1: .* is no mark"),
        ("<!-- run: cluster -->\n```yaml\na: 1\n```", ":2: a mark before something else"),
        ("<!-- run: cluster -->\nNow:\n```sh\nls\n```", ":2: a mark has to be right before"),
        ("text\n```console\nls\n```", ":2: commands are fenced as sh"),
        ("    kubectl get pods", ":1: a command that is not fenced"),
        ("<!-- setup: cluster\nls", ":1: a setup comment has no end"),
    ],
)
def test_wrong_mark_is_refused(tmp_path, text, why):
    """The error names the line."""
    with pytest.raises(docs_kit.MarkError, match=why):
        page(tmp_path, text)


def test_blocks_keep_order_and_place(tmp_path):
    """Hidden and visible commands, in lists too."""
    text = (
        "<!-- setup: cluster\na=1\n-->\n\n1. do\n\n   <!-- run: cluster -->\n   ```sh\n"
        "   if x; then\n     y\n   fi\n   ```\n\n<!-- run: none: needs the moon -->\n```sh\nz\n```\n"
    )

    assert page(tmp_path, text) == (
        docs_kit.Block(1, "cluster", "a=1"),
        docs_kit.Block(8, "cluster", "if x; then\n  y\nfi"),
        docs_kit.Block(15, "none", "z"),
    )


def test_run_fails_when_a_command_fails_and_leaves_no_process(tmp_path):
    """The output of the commands so far is shown; processes in the background are ended."""
    blocks = page(
        tmp_path, "<!-- run: shell -->\n```sh\nsleep 1000 & echo $!\necho one\nfalse\necho two\n```"
    )
    with pytest.raises(AssertionError, match="exit code 1") as caught:
        docs_kit.run(blocks, tmp_path, docs_kit.environment(None))

    shown = str(caught.value)
    assert "one" in shown
    assert "two" not in shown
