"""Measuring in processes of their own: CPU and wall seconds, peak memory; keeping that, and printing tables."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """What a measured call cost, and what it returned (JSON)."""

    cpu: float
    wall: float
    peak_mib: float
    value: Any


def measure(function: Callable[..., Any], **arguments: Any) -> Measurement:
    """Call ``function(**arguments)`` in a fresh process, with one thread; time only the part it reports.

    The function returns a JSON value; if that is a dict with `cpu` and `wall`, those are the figures (so that
    it can leave imports and inputs out), otherwise the whole call's.
    """
    reference = f"{function.__module__}:{function.__qualname__}"
    environment = installed() | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.harness", reference, json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def installed() -> dict[str, str]:
    """Return an environment in which modules are compiled once, as where they are installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Stopwatch:
    """CPU and wall seconds of a ``with`` block."""

    def __enter__(self) -> Stopwatch:
        self._start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.cpu = time.process_time() - self._start[0]
        self.wall = time.perf_counter() - self._start[1]

    def report(self, **values: Any) -> dict[str, Any]:
        """Return the figures with further values."""
        return {"cpu": self.cpu, "wall": self.wall, **values}


@dataclass
class Store:
    """What was measured, by key; on disk, where there is a file."""

    path: Path | None
    known: dict[str, dict[str, Any]]

    @classmethod
    def at(cls, path: Path | None) -> Store:
        """Read a file of earlier measurements."""
        known: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):
                    entry = json.loads(line)
                    known[entry["key"]] = entry
        return cls(path, known)

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Keep a measurement."""
        self.known[key] = {"key": key, **entry}
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.known[key]) + "\n")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    cells = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    out = sys.stdout
    out.write(f"\n## {title}\n\n")
    for number, row in enumerate(cells):
        out.write("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |\n")
        if number == 0:
            out.write("|" + "|".join("-" * (width + 2) for width in widths) + "|\n")
    out.flush()


def data_missing(what: str) -> None:
    """Say that only some instances were measured, where `$REMAT_DATA` names no others."""
    if not os.environ.get("REMAT_DATA"):
        sys.stdout.write(f"\nREMAT_DATA is not set: {what} only.\n")


def _child() -> None:
    module_name, _, name = sys.argv[1].partition(":")
    function = getattr(__import__(module_name, fromlist=[name]), name)
    with Stopwatch() as watch:
        value = function(**json.loads(sys.argv[2]))
    figures = {"cpu": watch.cpu, "wall": watch.wall}
    if isinstance(value, dict):
        figures |= {key: value.pop(key) for key in ("cpu", "wall") if key in value}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write("\n" + json.dumps({**figures, "peak_mib": peak, "value": value}) + "\n")


if __name__ == "__main__":
    _child()
