"""Solve every shipped instance and write the best known values into README.md.

``python instances/best_known.py`` rewrites the last column of the tables; ``--check`` says whether a value could
be improved, or is no longer reached.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import remat
from remat.units import Units, format_size, format_time

HERE = Path(__file__).resolve().parent
TENTH_OF_GIB = 2**30 // 10


def best_known(path: Path) -> str:
    """Return the cell for one instance: budgets and what the best verified schedule takes at each."""
    instance = remat.load(path)
    units = instance.units.build()
    if instance.kind == "chain":
        # Parameters that lie elsewhere take transfers; the algorithms for one memory know none.
        lower, upper = ("weight-offload", "weight-offload") if instance.has_parameters else ("rotor", "keep-all")
        least = remat.solve(instance, algorithm=lower, budget=0).least_budget
        whole = next(iter(remat.solve(instance, algorithm=upper).peak_memory.values()))
        assert least is not None
        budgets = [_round_up(least.size + (whole - least.size) * quarter // 4, units) for quarter in (1, 2, 3)]
        return "; ".join(f"{_size(budget, units)} -> {_solved(instance, budget)}" for budget in budgets)
    if instance.kind == "pipeline":
        whole = max(remat.solve(instance, algorithm="1f1b").peak_memory.values())
        budgets = [_round_up(whole * share // 10, units) for share in (10, 7)]
        return "; ".join(f"{_size(budget, units)} a device -> {_solved(instance, budget)}" for budget in budgets)
    if instance.kind == "tree":
        result = remat.solve(instance)
        return f"unbounded -> peak {_size(max(result.peak_memory.values()), units)} ({result.algorithm})"
    if instance.kind == "join":
        least = remat.solve(instance, algorithm="join-dp", budget=0).least_budget
        whole = next(iter(remat.solve(instance, algorithm="keep-all").peak_memory.values()))
        assert least is not None
        budgets = [_round_up(least.size + (whole - least.size) * quarter // 4, units) for quarter in (1, 2, 3)]
        return "; ".join(f"{_size(budget, units)} -> {_solved(instance, budget)}" for budget in budgets)
    if instance.kind == "dag":
        result = remat.solve(instance)
        if result.makespan is None:
            return f"unbounded -> {result.status}"
        peak = _size(max(result.peak_memory.values()), units)
        return f"unbounded -> {_solved(instance, None)}, peak {peak}"
    budget = 4 if not instance.storage else None
    return f"{budget or 'as given'} -> {_solved(instance, budget)}"


def _solved(instance: remat.Instance, budget: int | None) -> str:
    units = instance.units.build()
    result = remat.solve(instance, budget=budget)
    if result.makespan is None:
        return str(result.status)
    proved = ", proved" if result.proved_optimal else ""
    return f"{format_time(result.makespan, units)} ({result.algorithm}{proved})"


def _round_up(size: int, units: Units) -> int:
    if units.memory == "unit" or size < 10 * TENTH_OF_GIB:
        return size
    return -(-size // TENTH_OF_GIB) * TENTH_OF_GIB


def _size(size: int, units: Units) -> str:
    return format_size(size, units)


def main() -> int:
    """Rewrite, or compare, the README's last column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what stands there")
    check = parser.parse_args().check
    readme = HERE / "README.md"
    lines = readme.read_text().splitlines()
    different = 0
    for number, line in enumerate(lines):
        match = re.match(r"\| `([a-z]+/[^`]+)` \|", line)
        if match is None:
            continue
        cell = best_known(HERE / match[1])
        new = line.rstrip().rstrip("|").rpartition("|")[0] + f"| {cell} |"
        if new != line:
            different += 1
            sys.stdout.write(f"{match[1]}: {cell}\n")
        lines[number] = new
    if not check:
        readme.write_text("\n".join(lines) + "\n")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
