"""Do two versions of remat give the same answers?

    python -m benchmarks.same_answers answers.jsonl                 write what this version answers
    python -m benchmarks.same_answers answers.jsonl --against old   ... and compare it with an older file

All shipped instances x all algorithms that accept them x no budget, 75 % and 50 % of the no-recompute peak. A line a
cell: the whole schedule document without its seconds, version and notes, steps as a checksum. Anytime algorithms get
their work option; a cell that takes more than 10 s of CPU is listed as such and left out of the comparison.

To compare with an older commit, check it out beside this one and run this file there:
``PYTHONPATH=OLD/solver:OLD/algorithms python benchmarks/same_answers.py old.jsonl``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import remat

CPU_SECONDS = 10
SHARES = (None, 75, 50)
WORK: dict[str, dict[str, Any]] = {
    "adjoint-best": {"iterations": 20},
    "chain-best": {"iterations": 50},
    "dag-auto": {"iterations": 20},
    "offload-exact": {"work": 1},
    "remat-offload-best": {"iterations": 20},
    "swapadvisor": {"iterations": 5},
}
TOO_SLOW = "over 10 s"
LEFT_OUT = ("solve_seconds", "notes", "version", "created")


def cells() -> Iterator[tuple[str, str, int | None, int | None]]:
    """Yield (instance, algorithm, share in percent, budget)."""
    for name, path in remat.examples().items():
        instance = remat.load(path)
        whole = whole_peak(instance)
        for algorithm in remat.algorithms(instance.kind, available=True):
            for share in SHARES:
                if share is None or whole is not None:
                    yield name, algorithm.name, share, None if share is None else whole * share // 100  # type: ignore[operator]


def whole_peak(instance: Any) -> int | None:
    """Return the no-recompute peak of the memory that a bare budget means."""
    if getattr(instance, "storage", ()):
        try:
            result = remat.solve(instance, algorithm="store-all", budget={"": None})
        except remat.RematError:
            return None
        return result.peak_memory[result.machine.memories[1].name] if result.makespan is not None else None
    return remat.show(instance).no_recompute_peak


def answer(name: str, algorithm: str, budget: int | None) -> dict[str, Any]:
    """Solve one cell; errors are answers, too."""
    try:
        result = remat.solve(
            remat.examples()[name], algorithm=algorithm, budget=budget, options=WORK.get(algorithm), threads=1
        )
    except remat.RematError:
        return {"error": "refused"}  # its wording may change
    document = dict(result.to_dict())
    steps = json.dumps(document.pop("steps", None), sort_keys=True)
    for key in LEFT_OUT:
        document.pop(key, None)
    document["steps"] = hashlib.sha256(steps.encode()).hexdigest()[:16]
    return document


def limited(name: str, algorithm: str, budget: int | None) -> str:
    """Answer in a process of its own, which may use so many seconds of CPU."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        try:
            line = json.dumps(answer(name, algorithm, budget), sort_keys=True, default=str)
        except BaseException as error:  # whatever it is, it is what this version answers
            line = json.dumps({"error": type(error).__name__})
        with os.fdopen(writing, "w") as pipe:
            pipe.write(line)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        line = pipe.read()
    os.waitpid(child, 0)
    return line or json.dumps({"error": TOO_SLOW})


def compare(mine: Path, old: Path) -> int:
    """Print where two files differ; return how many cells do."""
    new, before = (
        {tuple(row["cell"]): row["answer"] for row in map(json.loads, path.read_text().splitlines())}
        for path in (mine, old)
    )
    slow = {cell for cell, found in (*new.items(), *before.items()) if _error(found) == TOO_SLOW}
    both = (new.keys() & before.keys()) - slow
    different = sorted((cell for cell in both if new[cell] != before[cell]), key=str)
    for cell in different:
        keys = [key for key in new[cell].keys() | before[cell].keys() if new[cell].get(key) != before[cell].get(key)]
        print("differs:", *cell, *(f"{key}: {before[cell].get(key)} -> {new[cell].get(key)}" for key in sorted(keys)))
    for cell in sorted(slow, key=str):
        print("over 10 s of CPU, left out:", *cell)
    refused = sum(_error(new[cell]) == "refused" for cell in both)
    print(
        f"{len(both)} cells compared ({refused} of them refused by both), {len(different)} differ; "
        f"{len(slow)} left out, {len((new.keys() ^ before.keys()) - slow)} only in one"
    )
    return len(different)


def _slow(path: Path) -> set[tuple[Any, ...]]:
    """Return the cells that the older version did not answer in time: there is nothing to compare them with."""
    rows = map(json.loads, path.read_text().splitlines())
    return {tuple(row["cell"]) for row in rows if _error(row["answer"]) == TOO_SLOW}


def _error(found: dict[str, Any]) -> str:
    return str(found.get("error", ""))


def main() -> int:
    """Write the answers, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--part", default="0/1", help="of several processes: this one's number / their number")
    given = parser.parse_args()
    skipped = _slow(given.against) if given.against else set()
    part, parts = map(int, given.part.split("/"))
    done = {tuple(json.loads(line)["cell"]) for line in given.output.open()} if given.output.exists() else set()
    count: Counter[str] = Counter()
    with given.output.open("a") as output:
        for index, (name, algorithm, share, budget) in enumerate(cells()):
            if index % parts == part and (name, algorithm, share) not in done | skipped:
                line = limited(name, algorithm, budget)
                count[_error(json.loads(line)) or "answered"] += 1
                output.write(f'{{"cell": {json.dumps([name, algorithm, share])}, "answer": {line}}}\n')
                output.flush()
    print(dict(count))
    return compare(given.output, given.against) if given.against else 0


if __name__ == "__main__":
    sys.exit(main() > 0)
