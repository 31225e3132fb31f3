"""Addresses: minimalloc's challenge, planted layouts, and the smallest arenas; CPU seconds.

REMAT_DATA names the folder of the foreign instances, MINIMALLOC a build of that solver to compare with. CP-SAT is
compared if it is installed. LAYOUT_LIMIT is the number of CPU seconds for each of the other solvers (default 60).
"""

from __future__ import annotations

import csv
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Stopwatch, table
from remat.plugin import Buffers, Context, arena_of
from remat.verifier.findings import Findings
from remat.verifier.layout import Placed, check_layout
from remat_algorithms.layout.arena import smallest_arena
from remat_algorithms.layout.best_fit import ORDERS, best_fit
from remat_algorithms.layout.live_bytes import arena_bound

MIB = 1 << 20
LIMIT = int(os.environ.get("LAYOUT_LIMIT", "60"))
"""CPU seconds for the other solvers; our own limit is as much work."""

WORK = LIMIT * 1_000_000_000
PLANTED = 100


def read(path: Path) -> Buffers:
    """Read an instance."""
    with open(path) as file:
        rows = list(csv.DictReader(file))
    columns = (np.array([int(row[key]) for row in rows], dtype=np.int64) for key in ("lower", "upper", "size"))
    return Buffers(*columns)


def planted(seed: int, height: int = MIB, unit: int = 1024) -> Buffers:
    """Return 100 to 500 buffers that a rectangle was cut into, some of which are left out."""
    draw = random.Random(seed)
    count, times = draw.randint(100, 500), draw.randint(60, 250)
    pieces = [(0, times, height // unit)]
    while len(pieces) < count:
        place = max(range(len(pieces)), key=lambda k: (pieces[k][1] - pieces[k][0]) * pieces[k][2] * draw.random())
        begin, end, size = pieces.pop(place)
        if end - begin > 1 and (size == 1 or draw.random() < 0.5):
            middle = draw.randint(begin + 1, end - 1)
            pieces += [(begin, middle, size), (middle, end, size)]
        elif size > 1:
            part = draw.randint(1, size - 1)
            pieces += [(begin, end, part), (begin, end, size - part)]
        else:
            pieces.append((begin, end, size))
    share = draw.choice((1.0, 0.97, 0.9))
    kept = [piece for piece in pieces if draw.random() < share]
    draw.shuffle(kept)
    columns = np.array(kept, dtype=np.int64).T
    return Buffers(columns[0], columns[1], columns[2] * unit)


def minimalloc(buffers: Buffers, capacity: int) -> tuple[float, bool | None]:
    """Return the CPU seconds of minimalloc, and whether it finds a layout; None if it reaches the limit."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "given.csv"), Path(folder, "made.csv")
        rows = zip(buffers.start.tolist(), buffers.end.tolist(), buffers.size.tolist(), strict=True)
        lines = [f"{k},{low},{high},{size}" for k, (low, high, size) in enumerate(rows)]
        given.write_text("\n".join(["id,lower,upper,size", *lines]) + "\n")
        command = [os.environ["MINIMALLOC"], f"--capacity={capacity}", f"--input={given}", f"--output={made}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        limited = ["prlimit", f"--cpu={LIMIT}", *command]
        code = subprocess.run(limited, capture_output=True, check=False).returncode
        took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        return took, None if code < 0 else made.exists() and made.stat().st_size > 0


def cp_sat(buffers: Buffers, capacity: int) -> tuple[float, bool | None]:
    """Return the CPU seconds of CP-SAT, and whether it finds a layout; None if it reaches the limit.

    The model has one rectangle over time and address for each buffer, no two of which overlap, and a cumulative
    constraint on the bytes. It runs in one thread.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    columns = (column.tolist() for column in (buffers.start, buffers.end, buffers.size))
    lives, ranges = [], []
    for start, end, size in zip(*columns, strict=True):
        offset = model.new_int_var(0, capacity - size, "")
        lives.append(model.new_fixed_size_interval_var(start, end - start, ""))
        ranges.append(model.new_fixed_size_interval_var(offset, size, ""))
    model.add_no_overlap_2d(lives, ranges)
    model.add_cumulative(lives, buffers.size.tolist(), capacity)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    done = threading.Event()
    begun = time.process_time()

    def watch() -> None:
        while not done.wait(0.1):
            if time.process_time() - begun > LIMIT:
                solver.stop_search()

    guard = threading.Thread(target=watch, daemon=True)
    guard.start()
    status = solver.solve(model)
    done.set()
    guard.join()
    found = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}
    return time.process_time() - begun, found.get(status)


def rivals() -> dict[str, Callable[[Buffers, int], tuple[float, bool | None]]]:
    """Return the other solvers that are at hand."""
    found: dict[str, Callable[[Buffers, int], tuple[float, bool | None]]] = {}
    if "MINIMALLOC" in os.environ:
        found["minimalloc"] = minimalloc
    if find_spec("ortools") is not None:
        found["CP-SAT"] = cp_sat
    return found


def solve(buffers: Buffers, capacity: int | None, work: int) -> tuple[float, Any]:
    """Return the CPU seconds of `layout-exact` (of `layout-auto` without a capacity), and its proposal."""
    with Stopwatch() as watch:
        given = buffers.with_capacity(capacity)
        found = smallest_arena(given, Context(), work=work, greedy=capacity is None)
    return watch.cpu, found


def challenge() -> Iterator[tuple[str, Buffers]]:
    """Yield the foreign instances."""
    folder = Path(os.environ.get("REMAT_DATA", ""), "layout")
    for path in sorted(folder.glob("*.1048576.csv")):
        yield path.name.split(".")[0], read(path)


def shown(seconds: float, found: bool | None) -> str:
    """Return the seconds of an answer."""
    return f"> {LIMIT}" if found is None else f"{seconds:.2f}{'' if found else ' (no layout)'}"


def compare(title: str, instances: list[tuple[str, Buffers]]) -> None:
    """Print seconds at the capacity of 1 MiB, and the smallest arenas."""
    rows, ratios, proved = [], [], 0
    others = rivals()
    seconds = dict.fromkeys(("layout-exact", *others), 0.0)
    solved = dict.fromkeys(seconds, 0)
    for name, buffers in instances:
        took, answer = solve(buffers, MIB, WORK)
        seconds["layout-exact"] += took
        solved["layout-exact"] += answer.offset is not None
        cells = [name, f"{len(buffers)}", f"{took:.3f}"]
        for other, ask in others.items():
            took, found = ask(buffers, MIB)
            seconds[other] += took
            solved[other] += found is True
            cells.append(shown(took, found))
        _, least = solve(buffers, None, 2_000_000_000)
        arena = arena_of(buffers, least.offset)
        ratios.append(arena / least.bound)
        proved += arena == least.bound
        rows.append((*cells, f"{ratios[-1]:.4f}"))
        sys.stdout.write("  ".join(rows[-1]) + "\n")
        sys.stdout.flush()
    table(title, ("instance", "buffers", *(f"{name}, s" for name in seconds), "arena / bound"), rows)
    for name, total in seconds.items():
        print(f"{name}: {solved[name]} of {len(instances)} solved, {total:.2f} s")
    print(f"arena / bound: {np.mean(ratios):.4f} on average, {max(ratios):.4f} at most; 1 (proved) in {proved}")


def proofs(instances: list[tuple[str, Buffers]]) -> None:
    """Print who proves that an arena one unit below the smallest one is too small."""
    rows = []
    for name, buffers in instances:
        unit = int(np.gcd.reduce(buffers.size))
        _, least = solve(buffers, None, 2_000_000_000)
        capacity = arena_of(buffers, least.offset) - unit
        took, answer = solve(buffers, capacity, WORK)
        cells = [name, f"{capacity}", f"{arena_bound(buffers)}"]
        cells.append(f"{took:.2f}" if answer.infeasible_within else f"> {LIMIT}")
        cells += [shown(*ask(buffers, capacity)) for ask in rivals().values()]
        sys.stdout.write("  ".join(cells) + "\n")
        sys.stdout.flush()
        rows.append(tuple(cells))
    head = ("instance", "capacity", "live bytes", "layout-exact, s", *(f"{name}, s" for name in rivals()))
    table("one unit less", head, rows)


def large() -> None:
    """Print what the greedy orders take on many buffers."""
    for count in (100_000, 1_000_000):
        draw = np.random.default_rng(1)
        start = np.arange(count)
        buffers = Buffers(start, start + draw.geometric(0.01, count), draw.integers(1, MIB, count))
        for order in ORDERS if count < 1_000_000 else ("lifetime", "start"):
            with Stopwatch() as watch:
                offset = best_fit(buffers, order)
            ratio = arena_of(buffers, offset) / arena_bound(buffers)
            placed = Placed(
                first=buffers.start,
                last=buffers.end,
                size=buffers.size,
                offset=offset,
                names=tuple(map(str, range(count))),
            )
            with Stopwatch() as checking:
                findings = Findings()
                check_layout(placed, findings)
            assert not findings
            taken = f"{watch.cpu:.1f} s, validated in {checking.cpu:.1f} s"
            print(f"{count} buffers, {order}: {taken}, arena / bound {ratio:.4f}")


def run() -> None:
    """Print everything."""
    solve(planted(0), MIB, 1_000_000)  # compiling is not part of it
    if instances := list(challenge()):
        compare("challenge", instances)
        proofs(instances)
    compare("planted", [(f"{seed}", planted(seed)) for seed in range(PLANTED)])
    large()


if __name__ == "__main__":
    run()
