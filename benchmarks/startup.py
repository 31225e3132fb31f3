"""What starting the command costs, against importing click alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import Any

from benchmarks.harness import installed, table

COMMANDS = {
    "python -c 'import click'": [sys.executable, "-c", "import click"],
    "remat --help": [sys.executable, "-m", "remat", "--help"],
    "remat --version": [sys.executable, "-m", "remat", "--version"],
    "remat algorithms": [sys.executable, "-m", "remat", "algorithms"],
    "remat solve example:lecture_l5": [sys.executable, "-m", "remat", "solve", "example:lecture_l5"],
}


def _seconds(command: list[str]) -> float:
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=installed())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def run(repeats: int = 15) -> None:
    """Measure all commands in turn, round by round, so that drift hits them alike."""
    cpu: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for round_number in range(repeats + 1):
        for name, command in COMMANDS.items():
            seconds = _seconds(command)
            if round_number:  # the first round warms the caches
                cpu[name].append(seconds)
    base = statistics.median(next(iter(cpu.values())))
    rows: list[list[Any]] = [
        [name, statistics.median(values) * 1000, statistics.median(values) / base] for name, values in cpu.items()
    ]
    table(f"Start-up, median of {repeats}", ["command", "CPU ms", "ratio to click"], rows)
