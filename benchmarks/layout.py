"""Addresses: minimalloc's challenge, planted layouts, and the smallest arenas; CPU seconds.

REMAT_DATA names the folder of the foreign instances, MINIMALLOC a build of that solver to compare with.
"""

from __future__ import annotations

import csv
import os
import random
import resource
import subprocess
import tempfile
from collections.abc import Iterator
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
LIMIT = 60
"""Seconds for minimalloc; our own limit is as much work."""

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


def minimalloc(buffers: Buffers, capacity: int) -> float | None:
    """Return the CPU seconds of minimalloc; None if it finds nothing."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "given.csv"), Path(folder, "made.csv")
        rows = zip(buffers.start.tolist(), buffers.end.tolist(), buffers.size.tolist(), strict=True)
        lines = [f"{k},{low},{high},{size}" for k, (low, high, size) in enumerate(rows)]
        given.write_text("\n".join(["id,lower,upper,size", *lines]) + "\n")
        command = [os.environ["MINIMALLOC"], f"--capacity={capacity}", f"--input={given}", f"--output={made}"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run([*command, f"--timeout={LIMIT}s"], capture_output=True, check=False)
        took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        return took if done.returncode == 0 and made.exists() else None


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


def compare(instances: list[tuple[str, Buffers]], *, single: bool) -> None:
    """Print seconds at the capacity of 1 MiB, and the smallest arenas."""
    rows, ratios = [], []
    mine = theirs = 0.0
    solved = others = 0
    for name, buffers in instances:
        seconds, found = solve(buffers, MIB, WORK)
        other = minimalloc(buffers, MIB) if "MINIMALLOC" in os.environ else None
        _, least = solve(buffers, None, 2_000_000_000)
        ratio = arena_of(buffers, least.offset) / least.bound
        mine, theirs = mine + seconds, theirs + (other or LIMIT)
        solved, others = solved + (found.offset is not None), others + (other is not None)
        ratios.append(ratio)
        rows.append(
            (name, f"{len(buffers)}", f"{seconds:.3f}", "-" if other is None else f"{other:.2f}", f"{ratio:.4f}")
        )
    if single:
        table("layouts", ("instance", "buffers", "layout-exact, s", "minimalloc, s", "arena / bound"), rows)
    print(f"layout-exact: {solved} of {len(instances)} solved, {mine:.2f} s")
    if "MINIMALLOC" in os.environ:
        print(f"minimalloc: {others} solved, {theirs:.2f} s (unsolved: {LIMIT} s); ratio {mine / theirs:.3f}")
    print(f"arena / bound: {np.mean(ratios):.4f} on average, {max(ratios):.4f} at most; 1 in {ratios.count(1.0)}")


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
        compare(instances, single=True)
    compare([(f"planted {seed}", planted(seed)) for seed in range(PLANTED)], single=False)
    large()


if __name__ == "__main__":
    run()
