"""Shell texts in a container's command: its commands, variables and folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

MAX_TEXT: Final = 2500
"""Maximum number of characters of a command that is parsed: a shell text of it takes 10 ms."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_OPERATORS: Final = ";&|()<>\n"
ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE: Final = re.compile(
    r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII
)
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z_]\w*)\)", re.ASCII)
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


def short(text: str, longest: int = 80) -> str:
    """Return a text in one line, for a message."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def shell_text(words: Sequence[str]) -> str | None:
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


def commands_of(text: str) -> Iterator[list[str]]:
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
        if not token or token.strip(_OPERATORS):
            words += [] if skip else [token]
            skip = False
        elif "<" in token or ">" in token:
            skip = True
            if words and words[-1] in {"1", "2"}:
                words.pop()
        else:
            yield words
            words = []
    yield words


class Shell:
    """Commands of a shell text next to the launcher.

    Attributes:
        env: variables that they set.
        folder: working directory from a ``cd``; "" for none.
        notes: one sentence about each other command.
    """

    def __init__(self) -> None:
        self.env: dict[str, str] = {}
        self.folder = ""
        self.notes: list[str] = []

    def take(self, words: Sequence[str]) -> None:
        """Process a command before the launcher."""
        if not words or words[0] in {"set", ":", "true"}:
            return
        found = [ASSIGNMENT.fullmatch(word) for word in words[words[0] == "export" :]]
        if found and all(each and "$" not in each[2] and "`" not in each[2] for each in found):
            self.env.update((each[1], each[2]) for each in found if each)
            return
        is_folder = words[0] == "cd" and len(words) == 2 and words[1].startswith("/")
        if is_folder:
            self.folder = words[1]
        if not is_folder or "$" in words[1]:
            self.also_runs(words)

    def also_runs(self, words: Sequence[str]) -> None:
        """Note a command."""
        if words:
            self.notes.append(
                f"the shell also runs {short(' '.join(words))!r}: do that in the image, in an init "
                "container, or in the program"
            )


def resolved(word: str, variables: Mapping[str, str]) -> str:
    """Return a word with the values of variables that are known."""
    return _VARIABLE.sub(lambda found: variables.get(_name(found)) or found[0], word)


def for_kubelet(word: str, variables: Mapping[str, str], notes: list[str]) -> str:
    """Return a shell's word as a word of a command, whose variables the kubelet resolves."""

    def named(found: re.Match[str]) -> str:
        name = found[2] or found[3]
        return f"$({name})" if name in variables else found[0]

    done = _VARIABLE.sub(named, word)
    unknown = _VARIABLE.sub(lambda found: "" if found[1] else found[0], done)
    values = (variables.get(_name(found), "") for found in _VARIABLE.finditer(word))
    if any(len(value.split()) > 1 for value in values) or "`" in done or "$" in unknown:
        notes.append(f"the shell would expand {short(word)!r}: write its value")
    return done


def _name(found: re.Match[str]) -> str:
    return found[1] or found[2] or found[3]
