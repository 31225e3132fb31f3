"""Writing training steps of transformers: time and memory over the number of micro-batches, which should be linear."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness import measure, table

MICRO_BATCHES = (1, 8, 16, 176)
COMMAND = ("dag", "--family", "transformer", "--preset", "llama-70b")


def write(path: str, micro_batches: int) -> dict[str, Any]:
    """Write one step through the command line, in this process."""
    from remat.cli.main import main

    assert main(["generate", *COMMAND, "--micro-batches", str(micro_batches), "-o", path, "--quiet"]) == 0
    counted = subprocess.run(["grep", "-c", '"phase"', path], check=True, capture_output=True, text=True)
    return {"tasks": int(counted.stdout), "bytes": Path(path).stat().st_size}


def run() -> None:
    """Print the table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for many in MICRO_BATCHES:
            found = measure(write, path=str(Path(folder) / "step.json"), micro_batches=many)
            megabytes = found.value["bytes"] / 1e6
            rows.append([many, f"{found.value['tasks']:,}", found.cpu, round(found.peak_mib), round(megabytes, 1)])
    header = ["micro-batches", "tasks", "CPU s", "memory MiB", "file MB"]
    table("Training steps of a 70B transformer, written", header, rows)
