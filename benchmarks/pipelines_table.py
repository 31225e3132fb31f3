"""Pipelines at equal memory: the search against the schedules that have a name, and the bound.

    python -m benchmarks.pipelines_table [--devices 4 8] [--batches 8 16 32] [--moves 6000] [--store FILE]

Each row is an instance of kind `pipeline` with two layers a device, solved and verified like any other; a figure is the
bubble, 1 - busy / (last end - first start of all devices together), in percent. A schedule that does not fit the
memory is left out (-). The bound is the least one of the three placements that are searched: one stage a device, two
in a V, two in turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, Store, table
from remat.solving.problem_setup import make_problem
from remat_algorithms.parallel.pipeline.bounds import lower_bounds
from remat_algorithms.parallel.pipeline.stages import SHAPES, staging

NAMED = ("1f1b", "eager-1f1b", "interleaved-1f1b", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "tessel")
SHARES = (0.5, 0.75, 1.0, 1.5)
"""Activations of one micro-batch that a device has room for, by devices."""

HOPS = (0, 1, 5)


def instance(devices: int, batches: int, hop: int, *, halves: bool) -> dict[str, Any]:
    """Return a pipeline of F = 10, B = 20 a device, or of F = B = W = 10, where W needs half of what F saved."""
    layer: dict[str, Any] = {"forward_time": 5, "backward_time": 10, "saved_size": 2, "repeat": 2 * devices}
    if halves:
        layer |= {"backward_time": 5, "weight_time": 5, "weight_saved_size": 1}
    cluster: dict[str, Any] = {"devices": [{"name": "gpu", "count": devices}]}
    if hop:
        cluster["levels"] = [{"delay": hop}]
    units = {"time": "unit", "memory": "unit"}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "units": units, "layers": [layer]}
    return document | {"micro_batches": batches, "cluster": cluster, "backward_reads": ["saved"]}


def bubble(makespan: float, batches: int) -> float:
    """Return the share of a makespan in which a device waits, in percent: all have the same work."""
    return 100 * (1 - 30 * batches / makespan)


def measure(devices: int, batches: int, hop: int, share: float, *, halves: bool, moves: int) -> dict[str, Any]:
    """Solve one row with everything; return makespans by algorithm, the bound and the CPU seconds of the search."""
    document = instance(devices, batches, hop, halves=halves)
    loaded = remat.load(document)
    budget = int(share * devices * 4)  # two layers of two units a device and micro-batch
    found: dict[str, Any] = {}
    for name in NAMED:
        try:
            result = remat.solve(loaded, algorithm=name, budget=budget)
        except remat.OptionError:
            continue
        if result.makespan is not None:
            found[name] = result.makespan
    with Stopwatch() as watch:
        ours = remat.solve(loaded, algorithm="pipe-search", budget=budget, options={"moves": moves})
    problem = make_problem(loaded, budget=budget)
    bound = min(max(lower_bounds(staging(problem, shape).model).values()) for shape in SHAPES)
    return {"named": found, "ours": ours.makespan, "bound": bound, "cpu": watch.cpu}


def rows(devices: Sequence[int], batches: Sequence[int], moves: int, store: Path | None) -> Iterator[list[object]]:
    """Yield the rows; those in the store are not measured again."""
    kept = Store.at(store)
    for halves in (False, True):
        for count in devices:
            for batch in batches:
                for hop in HOPS:
                    for share in SHARES:
                        key = f"{'F B W' if halves else 'F B'} p={count} m={batch} c={hop} {share:g} p"
                        if key not in kept.known:
                            kept.add(key, measure(count, batch, hop, share, halves=halves, moves=moves))
                        yield _row(key, kept.known[key], batch)


def _row(key: str, entry: dict[str, Any], batches: int) -> list[object]:
    named, ours = entry["named"], entry["ours"]
    cells: list[object] = [key, *(f"{bubble(named[name], batches):.1f}" if name in named else "-" for name in NAMED)]
    least = min(named.values(), default=None)
    gain = "-" if least is None or ours is None else f"{100 * (least / ours - 1):.1f} %"
    mine = "-" if ours is None else f"{bubble(ours, batches):.1f}"
    return [*cells, mine, f"{bubble(entry['bound'], batches):.1f}", gain, f"{entry['cpu']:.1f}"]


def main() -> None:
    """Read the command line; print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipelines_table", description=__doc__)
    parser.add_argument("--devices", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--batches", type=int, nargs="*", default=[8, 16, 32])
    parser.add_argument("--moves", type=int, default=6000, help="schedules a placement")
    parser.add_argument("--store", type=Path, default=None, help="where measurements are kept")
    given = parser.parse_args()
    listed = list(rows(given.devices, given.batches, given.moves, given.store))
    header = ["bubble in %", *NAMED, "pipe-search", "bound", "quicker", "CPU s"]
    table("Equal memory: two layers a device, F = 10, B = 20 a device, or F = B = W = 10; c: hop", header, listed)
    sys.stdout.write("quicker: the best schedule with a name that fits, over the search's\n")


if __name__ == "__main__":
    main()
