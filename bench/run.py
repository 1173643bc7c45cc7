"""Runs benchmarks one after the other, each in its own process; by default all.

Not included: those with many pods (``scale``) and with other tools (``memcached``,
``training_local``). ``bench/README.md`` lists these with their arguments.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALL = (
    "memory",
    "manager_memory",
    "restart",
    "jobs",
    "jobsets",
    "admission",
    "gang_events",
    "coscheduling",
    "lost_nodes",
    "images",
    "agent",
    "real_pods",
    "training",
    "failover",
    "library",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=ALL, help=f"some of {', '.join(ALL)}")
    failed = []
    for name in parser.parse_args().names:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
