"""Every algorithm on every shipped instance of its kind: how each solve ends.

    python -m benchmarks.shipped_table [--seconds 10] [--share 75] [--hosted] [--only ALGORITHM ...] [--store FILE]

The budget is a share of the peak without recomputation. With `--hosted`, chains, graphs and adjoints without a second
memory get a host on links of 12 GB/s, so that the algorithms that only offload have something to do. Each solve runs in
a forked process and ends as the command would: 0 schedule, 1 internal error, 2 refused, 3 infeasible, 4 nothing found,
5 wrong claim; `late` if it was killed. The first table counts; the second names each refusal and what stands behind it;
the third lists each solve that ended with 1, 5, late, or with 4 and no reason.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Store, table
from benchmarks.hosts import host
from benchmarks.same_answers import whole_peak
from benchmarks.time_limits import preload
from remat.cli.io_session import ExitCode
from remat.errors import AlgorithmError, ClaimError, RematError

GIGABYTES = 12.0
"""Bandwidth of the links to the host, per second, each way."""

KILLED_AT = 20.0
"""Multiple of the limit at which a process is killed, in wall seconds: other work may run beside."""

HOSTED = ("chain", "dag", "adjoint")
BAD = ("1", "5", "late")


def solves(only: Sequence[str], share: int, *, hosted: bool) -> Iterator[tuple[str, str, Any, int | None]]:
    """Yield (instance, algorithm, machine, budget)."""
    for name, path in remat.examples().items():
        instance = remat.load(path)
        machine = None
        if hosted:
            if instance.kind not in HOSTED or len(remat.show(instance).machine.memories) > 1:
                continue
            machine = _host(instance)
        whole = whole_peak(instance)
        budget = None if whole is None else whole * share // 100
        for entry in remat.algorithms(instance.kind, available=True):
            if not only or entry.name in only:
                yield name, entry.name, machine, budget


def _host(instance: Any) -> dict[str, Any]:
    """Return a device and a host; without seconds, a link carries the peak in a quarter of the time of the tasks."""
    machine = host(GIGABYTES)
    if remat.show(instance).units.time == "unit":
        shown = remat.show(instance)
        for link in machine["links"]:
            link["bandwidth"] = max(1, int(4 * (shown.no_recompute_peak or 0) / shown.no_recompute_time))
    return machine


def ending(name: str, algorithm: str, machine: Any, budget: int | None, seconds: float) -> dict[str, Any]:
    """Solve in a forked process; return its exit code and what it says."""
    reading, writing = os.pipe()
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            said = _ended(name, algorithm, machine, budget, seconds)
        except BaseException as error:  # whatever it is, it is how the solve ended
            said = {"code": "1", "says": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(said | {"says": said["says"][:300], "cpu": time.process_time()}).encode())
        os._exit(0)
    os.close(writing)
    ready = select.select([reading], [], [], KILLED_AT * seconds)[0]
    answer = os.read(reading, 65536) if ready else b""
    os.close(reading)
    if not answer:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = json.loads(answer) if answer else {"code": "late" if not ready else "1", "says": "killed", "cpu": 0.0}
    return found | {"wall": time.perf_counter() - begun}


def _ended(name: str, algorithm: str, machine: Any, budget: int | None, seconds: float) -> dict[str, Any]:
    given = {} if machine is None else {"machine": machine}
    try:
        result = remat.solve(
            remat.examples()[name], algorithm=algorithm, budget=budget, time_limit=seconds, threads=1, **given
        )
    except ClaimError as error:
        return {"code": "5", "says": str(error)}
    except AlgorithmError as error:
        return {"code": "1", "says": str(error)}
    except RematError as error:
        return {"code": "2", "says": str(error)}
    reasons = [*result.notes, *([] if result.scope is None else [f"within {result.scope}"])]
    stopped = str(result.termination)
    if stopped != "completed":
        reasons.append(stopped)
    return {"code": str(int(ExitCode.of(result))), "says": "; ".join(map(str, reasons))}


def is_bad(found: dict[str, Any]) -> bool:
    """Whether a solve ended as none should."""
    return found["code"] in BAD or (found["code"] == "4" and not found["says"])


def run(
    seconds: float = 10.0,
    share: int = 75,
    *,
    hosted: bool = False,
    only: Sequence[str] = (),
    store: Path | None = None,
) -> int:
    """Print the tables; return how many solves ended as none should."""
    kept = Store.at(store)
    count: defaultdict[str, Counter[str]] = defaultdict(Counter)
    refused: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    bad = []
    for name, algorithm, machine, budget in solves(only, share, hosted=hosted):
        key = f"{name} {algorithm} {share} {seconds:g} {hosted}"
        if key not in kept.known:
            kept.add(key, ending(name, algorithm, machine, budget, seconds))
        found = kept.known[key]
        count[name.partition("/")[0]][found["code"]] += 1
        if found["code"] == "2":
            refused[algorithm, found["says"]].append(name)
        if is_bad(found):
            bad.append((name, algorithm, found["code"], found["says"]))
    codes = ["0", "2", "3", "4", *BAD]
    rows = [[form, *(number[code] for code in codes), sum(number.values())] for form, number in count.items()]
    table(f"How solves ended, {share} % of the peak, {seconds:g} s", ["instances", *codes, "all"], rows)
    named = [[algorithm, says, len(names)] for (algorithm, says), names in sorted(refused.items())]
    table("Refusals", ["algorithm", "message", "instances"], named)
    table(f"Bad endings: {len(bad)}", ["instance", "algorithm", "ended", "says"], bad)
    return len(bad)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped_table", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of each solve")
    parser.add_argument("--share", type=int, default=75, help="budget, in per cent of the peak without recomputation")
    parser.add_argument("--hosted", action="store_true", help="with a host behind the device")
    parser.add_argument("--only", nargs="*", default=[], help="algorithms")
    parser.add_argument("--store", type=Path, default=None, help="where measurements are kept")
    given = parser.parse_args()
    preload()
    return run(given.seconds, given.share, hosted=given.hosted, only=given.only, store=given.store)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
