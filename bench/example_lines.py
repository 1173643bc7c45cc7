"""Lines of code of the example operators, compared with those on kopf or controller-runtime.

Lines with code count: no blank lines, comments or docstrings. Markers of kubebuilder count, since
manifests are generated from them; generated files do not. The CRD and roles that a user of kopf
writes as YAML count as well: ``jobsetpy crds`` and ``jobsetpy rbac`` print both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.generate.rooms import code_lines as python_lines

ROOT: Final = Path(__file__).resolve().parents[1]
EXAMPLES: Final = ROOT / "examples/controllers"
_OTHERS: Final = ROOT / "bench/library_programs"
_GO: Final = _OTHERS / "controller_runtime"

COMPARED: Final[Mapping[str, tuple[str, tuple[Path, ...]]]] = {
    "memcached": (
        "kopf",
        (_OTHERS / "memcached_with_kopf.py", _OTHERS / "memcached_with_kopf.yaml"),
    ),
    "shared_configuration": (
        "controller-runtime",
        (_GO / "sharedconfiguration/main.go", _GO / "sharedconfiguration/api/types.go"),
    ),
    "pod_ttl": ("controller-runtime", (_GO / "podttl/main.go",)),
    "web_apps": (
        "controller-runtime",
        (_GO / "webapps/main.go", _GO / "webapps/api/v1/types.go"),
    ),
}
"""The other library, and the files that its user writes, by example."""


def code_lines(path: Path) -> int:
    """Return the number of lines of a file that have code."""
    text = path.read_text()
    if path.suffix == ".py":
        return python_lines(text)
    lines = (line.strip() for line in text.splitlines())
    comment = "#" if path.suffix == ".yaml" else "//"
    return sum(
        bool(line) and (not line.startswith(comment) or line.startswith("// +")) for line in lines
    )


def counted() -> dict[str, tuple[int, int]]:
    """Return the lines of each example, ours and the other library's."""
    return {
        name: (code_lines(EXAMPLES / f"{name}.py"), sum(code_lines(path) for path in files))
        for name, (_, files) in COMPARED.items()
    }


def main() -> None:
    print("| example | ours | other | part |")
    print("|---|---|---|---|")
    for name, (ours, other) in counted().items():
        print(f"| {name} | {ours} | {other}, {COMPARED[name][0]} | {ours / other:.2f} |")


if __name__ == "__main__":
    main()
