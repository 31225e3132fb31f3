"""Is a time limit kept? Every algorithm on large instances of the kinds it accepts, a process for each.

    python -m benchmarks.limits [--seconds 1 5 20] [--only ALGORITHM ...] [--on INSTANCE ...] [--store FILE] [--cold]

A limit is kept where `solve` comes back within 10 % of it and a second more, by the wall: idle machines only. On a
machine with other work (`--by-cpu`) it is the CPU seconds spent after the limit that count. With `--store`, what is
measured is appended there, line by line, and not measured again. `--cold`: each process compiles its kernels itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Store, table

ALLOWED_SHARE, ALLOWED = 0.1, 1.0
"""Share of a limit, and seconds on top, by which it may be exceeded."""

KILLED_AFTER = 60.0
"""Seconds on top of the limit after which a process is killed."""

SHARE = 60
"""Budget, in percent of the peak of keeping everything, where that is known."""


@dataclass(frozen=True)
class Case:
    """A large instance: how it is made, and the memory that a budget means."""

    kind: str
    make: Callable[[], dict[str, Any] | str]
    budget: dict[str, Any] | None = None


def _generated(kind: str, family: str, **parameters: Any) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        from remat.generate import generate

        return generate(kind, family, **parameters)

    return make


def _shipped(name: str) -> Callable[[], str]:
    def make() -> str:
        import remat

        return str(remat.examples()[name])

    return make


def _with_host(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    def made() -> dict[str, Any]:
        links = [
            {"source": source, "target": target, "bandwidth": 10.0}
            for source, target in (("device", "host"), ("host", "device"))
        ]
        memories = [{"name": "device"}, {"name": "host"}]
        processors = [{"name": "gpu", "memory": "device"}]
        return make() | {"machine": {"memories": memories, "processors": processors, "links": links}}

    return made


LOOP = _generated("adjoint", "uniform", steps=10_000)
CHAIN = _generated("chain", "random", length=1000, seed=1)
LAYERED = _generated("dag", "layered", nodes=10_000, seed=1)
CASES = {
    "loop_n10000": Case("adjoint", LOOP),
    "uniform_n500": Case("adjoint", _generated("adjoint", "uniform", steps=500)),
    "unequal_n1000": Case("adjoint", _generated("adjoint", "heterogeneous", steps=1000, seed=1)),
    "unequal_n10000": Case("adjoint", _generated("adjoint", "heterogeneous", steps=10_000, seed=1)),
    "shipped_loop_n10000": Case("adjoint", _shipped("adjoint/loop_n10000")),
    "three_levels_n500": Case("adjoint", _shipped("adjoint/three_levels_n500")),
    "chain_l1000": Case("chain", CHAIN),
    "chain_l1000_host": Case("chain", _with_host(CHAIN)),
    "bert_large_parameters": Case("chain", _shipped("chains/bert_large_b32_parameters")),
    "layered_n10000": Case("dag", LAYERED),
    "mlp_n10000": Case("dag", _generated("dag", "mlp", layers=1660)),
    "layered_n10000_host": Case("dag", _with_host(LAYERED)),
    "unet_joint": Case("dag", _shipped("dags/unet_joint")),
    "tree_n10000": Case("tree", _generated("tree", "random", nodes=10_000, seed=1)),
}

CHILD = """
import json, resource, sys, threading, time
import remat
from remat.instance import load
given = json.loads(sys.argv[1])
instance = load(given["path"])
at_limit = []
timer = threading.Timer(given["seconds"], lambda: at_limit.append(time.process_time()))
timer.daemon = True
timer.start()
loaded, wall = time.process_time(), time.monotonic()
said = {}
try:
    result = remat.solve(
        instance, algorithm=given["algorithm"], budget=given["budget"], time_limit=given["seconds"], threads=1
    )
    said = {"status": str(result.status), "termination": str(result.termination)}
    if result.peak_memory:
        said["peak"] = result.peak_memory
except remat.RematError as error:
    said = {"status": "refused", "termination": str(error)[:200]}
own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
said |= {
    "wall": time.monotonic() - wall,
    "cpu": time.process_time() - loaded,
    "late": time.process_time() - at_limit[0] if at_limit else 0.0,
    "mib": max(own.ru_maxrss, others.ru_maxrss) / 1024,
}
print(json.dumps(said))
"""


def measured(path: str, algorithm: str, budget: Any, seconds: float, cold: str | None = None) -> dict[str, Any]:
    """Solve in a process of its own; return what it says."""
    given = json.dumps({"path": path, "algorithm": algorithm, "budget": budget, "seconds": seconds})
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = os.environ | one | ({} if cold is None else {"NUMBA_CACHE_DIR": cold, "XDG_CACHE_HOME": cold})
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, given],
            capture_output=True,
            text=True,
            env=environment,
            timeout=KILLED_AFTER + seconds,
        )
    except subprocess.TimeoutExpired:
        beyond = KILLED_AFTER + seconds
        return {"status": "killed", "termination": "", "wall": beyond, "cpu": beyond, "late": beyond, "mib": 0.0}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        figures = dict.fromkeys(("wall", "cpu", "late", "mib"), 0.0)
        return {"status": f"exit {done.returncode}", "termination": last, **figures}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _budget(store: Store, name: str, path: str) -> Any:
    """Return the budget of an instance: a share of the peak of keeping everything, where it has no other one."""
    import remat

    if any(level.capacity is not None for level in getattr(remat.load(path), "storage", ()) or ()):
        return None
    key = f"{name} whole"
    if key not in store.known:
        store.add(key, measured(path, "keep-all", {"": None}, 600.0))
    peaks = store.known[key].get("peak")
    return None if not peaks else next(iter(peaks.values())) * SHARE // 100


def cells(store: Store, only: Sequence[str], names: Sequence[str], folder: Path) -> Iterator[tuple[str, str, str, Any]]:
    """Yield (instance, path, algorithm, budget)."""
    import remat

    for name, case in CASES.items():
        if names and name not in names:
            continue
        made = case.make()
        path = folder / f"{name}.json"
        if not isinstance(made, str):
            path.write_text(json.dumps(made), encoding="utf-8")
        where = made if isinstance(made, str) else str(path)
        budget = _budget(store, name, where)
        for algorithm in [*(entry.name for entry in remat.algorithms(case.kind, available=True)), "auto"]:
            if not only or algorithm in only:
                yield name, where, algorithm, budget


def kept(entry: dict[str, Any], seconds: float, *, by_cpu: bool = False) -> bool:
    """Whether the limit was kept."""
    late: float = entry["late"] if by_cpu else entry["wall"] - seconds
    return not str(entry["status"]).startswith("exit") and late <= seconds * ALLOWED_SHARE + ALLOWED


def run(
    seconds: Sequence[float] = (1.0,),
    *,
    only: Sequence[str] = (),
    on: Sequence[str] = (),
    store: Path | None = None,
    cold: bool = False,
    by_cpu: bool = False,
) -> None:
    """Print the table of what overran, and how many did not."""
    kept_store, rows, total = Store.at(store), [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path, algorithm, budget in cells(kept_store, only, on, Path(folder)):
            for limit in seconds:
                key = f"{name} {algorithm} {limit:g}{' cold' if cold else ''}"
                if key not in kept_store.known:
                    with tempfile.TemporaryDirectory() as cache:
                        found = measured(path, algorithm, budget, limit, cache if cold else None)
                    kept_store.add(key, found)
                entry = kept_store.known[key]
                total += 1
                if not kept(entry, limit, by_cpu=by_cpu):
                    figures = [float(entry[figure]) for figure in ("wall", "cpu", "late", "mib")]
                    rows.append([name, algorithm, limit, *figures, entry["status"], entry["termination"][:40]])
    header = ["instance", "algorithm", "limit s", "wall s", "CPU s", "late CPU s", "MiB", "status", "termination"]
    table(f"Limits overrun: {len(rows)} of {total}", header, rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="*", default=[1.0, 5.0, 20.0])
    parser.add_argument("--only", nargs="*", default=[], help="algorithms")
    parser.add_argument("--on", nargs="*", default=[], choices=list(CASES), help="instances", metavar="INSTANCE")
    parser.add_argument("--store", type=Path, default=None, help="where measurements are kept")
    parser.add_argument("--cold", action="store_true", help="with an empty cache of kernels")
    parser.add_argument("--by-cpu", action="store_true", help="look at CPU seconds: the machine has other work")
    given = parser.parse_args()
    run(given.seconds, only=given.only, on=given.on, store=given.store, cold=given.cold, by_cpu=given.by_cpu)


if __name__ == "__main__":
    main()
