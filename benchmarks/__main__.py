"""Run benchmarks: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib import import_module

NAMES = (
    "startup",
    "spine",
    "generators",
    "referee",
    "journal",
    "compiler",
    "rotor",
    "revolve",
    "streaming",
    "hrevolve",
    "trees",
    "layout",
    "layout_schedules",
    "postorder_table",
    "parallel_trees",
    "pipelines",
    "planners",
    "placements",
    "chain_table",
    "offload_table",
    "offload_gap",
    "adjoint_gap",
    "survey_table",
    "claims",
    "baselines",
    "joins",
    "dag_auto",
    "dag_large",
    "dag_scale",
    "dag_offload",
    "dag_reorder",
    "dag_exact",
    "dag_programs",
    "dag_table",
    "interrupts",
    "library",
)


def main() -> None:
    """Run the named benchmarks, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Speed, as ratios of one run.")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args().names or NAMES
    sys.stdout.write(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}\n")
    for name in names:
        import_module(f"benchmarks.{name}").run()


if __name__ == "__main__":
    main()
