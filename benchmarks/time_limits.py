"""Does every algorithm keep its time limit? Drawn instances of 1,000 to 10,000 steps, stages, tasks or nodes.

    python -m benchmarks.time_limits [--seconds 1 3] [--count 1] [--seed 0] [--forms FORM ...] [--only ALGORITHM ...]
                                     [--store FILE] [--table]

With a time limit of T seconds, `solve` returns within 1.1 T + 1 s, from the instance document to the verified result.
Each solve runs in a forked process, which is killed at 20 T. Its clock is the CPU time of the process and of those that
it starts, so that other work on the machine changes nothing; wall seconds are printed for information. `--table` asks
for the instances of the known overruns instead of drawn ones. With `--store` each measurement is appended to a file,
and not taken again.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import random
import re
import resource
import select
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from benchmarks.drawn import FORMS, Case, Document, Draw, with_host
from benchmarks.harness import Store, table

SHARE, SECONDS = 1.1, 1.0
"""A limit of T is kept where a solve takes at most `SHARE` T + `SECONDS`."""

KILLED_AT = 20.0
"""Multiple of the limit at which a process is killed."""

EXPLAINED = "plan --explain"
"""Stands for the command, which plans and then solves for more memory and one more device, instead of an algorithm."""

SAMPLE = 0.05
"""Seconds between two readings of the CPU time of child processes."""


# --- one solve --------------------------------------------------------------------------------------------------------


class CpuClock:
    """A clock that shows the CPU seconds of this process and of all that it has started."""

    def __init__(self) -> None:
        self._running = 0.0
        self._begun = False

    def __call__(self) -> float:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ended.ru_utime + ended.ru_stime + self._running

    def install(self) -> None:
        """Show this clock wherever `time.monotonic` is asked for from now on."""
        time.monotonic = self

    def follow_children(self) -> None:
        """Count processes that are still running, too, as a thread sees them now and then."""
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        ticks = os.sysconf("SC_CLK_TCK")
        while True:
            used = 0
            for thread in Path("/proc/self/task").iterdir():
                with suppress(OSError):
                    for child in (thread / "children").read_text().split():
                        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                        used += int(fields[11]) + int(fields[12])
            self._running = used / ticks
            time.sleep(SAMPLE)


def measured(case: Case, algorithm: str, seconds: float) -> dict[str, Any]:
    """Solve in a forked process; return its figures, and where in the code it was when it ran over its limit."""
    reading, writing = os.pipe()
    wall = time.perf_counter()
    with tempfile.TemporaryFile("w+") as trace:
        child = os.fork()
        if child == 0:
            os.close(reading)
            _solve(writing, trace, case, algorithm, seconds)
        os.close(writing)
        answer, asked, cpu = b"", False, 0.0
        while True:
            if select.select([reading], [], [], SAMPLE)[0]:
                part = os.read(reading, 65536)
                if not part:
                    break
                answer += part
                continue
            cpu = _cpu_of(child)
            if cpu > SHARE * seconds + SECONDS and not asked:
                os.kill(child, signal.SIGUSR1)
                asked = True
            # A process that waits for something uses no CPU time: the wall has a limit, too.
            if cpu > KILLED_AT * seconds or time.perf_counter() - wall > 10 * KILLED_AT * seconds:
                os.killpg(child, signal.SIGKILL)
                break
        os.close(reading)
        os.waitpid(child, 0)
        trace.seek(0)
        frames = [line.strip() for line in trace if "remat" in line]
    found = json.loads(answer) if answer else {"status": "killed", "says": "", "cpu": cpu}
    return found | {"wall": time.perf_counter() - wall, "where": _shown(frames)}


def _shown(frames: list[str]) -> str:
    """Shorten the innermost frames of a traceback."""
    places = [re.search(r'([^/]+)\.py", line (\d+) in (\w+)', frame) for frame in frames]
    return " < ".join(f"{at[1]}:{at[2]} {at[3]}" for at in places if at)[:200]


def _cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _solve(writing: int, trace: IO[str], case: Case, algorithm: str, seconds: float) -> None:
    """Solve, write what came of it into a pipe, and end this process."""
    import remat

    os.setpgid(0, 0)
    faulthandler.register(signal.SIGUSR1, file=trace, all_threads=False)
    clock = time.monotonic
    assert isinstance(clock, CpuClock)
    clock.follow_children()
    begun = clock()
    said: dict[str, Any]
    try:
        if algorithm == EXPLAINED:
            said = _explained(case, seconds)
        else:
            result = remat.solve(
                case.document,
                algorithm=algorithm,
                budget=case.budget,
                time_limit=seconds,
                **case.arguments,
            )
            said = {
                "status": str(result.status),
                "says": "; ".join([str(result.termination), *result.notes[:1]]),
                "makespan": None if result.makespan is None else float(result.makespan),
                "bound": float(result.lower_bound),
                "by": result.algorithm,
            }
    except remat.RematError as error:
        said = {"status": "refused", "says": str(error)}
    except BaseException as error:
        said = {"status": "failed", "says": f"{type(error).__name__}: {error}"}
    text = json.dumps(said | {"cpu": clock() - begun, "says": said["says"][:300]})
    os.write(writing, text.encode())
    os._exit(0)


def _explained(case: Case, seconds: float) -> dict[str, Any]:
    """Run ``remat plan --explain`` in this process; its limit is for the plan and all that --explain solves."""
    from remat.cli.main import main as command

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as printed:
        path = Path(folder) / "instance.json"
        path.write_text(json.dumps(case.document), encoding="utf-8")
        code = command(
            ["plan", str(path), "-b", str(case.budget), "--explain", "--format", "json", "--time-limit", f"{seconds}s"]
        )
    found = json.loads(printed.getvalue()) if code == 0 else {}
    return {"status": found.get("status", f"exit code {code}"), "says": f"makespan {found.get('makespan')}"}


def ratio(found: dict[str, Any], seconds: float) -> float:
    """Return what a solve took, as a multiple of what it may take."""
    return float(found["cpu"]) / (SHARE * seconds + SECONDS)


# --- all of them ------------------------------------------------------------------------------------------------------


def solves(forms: Sequence[str], only: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, Case, str]]:
    """Yield (name of the instance, instance, algorithm)."""
    import remat

    for form in forms:
        for number in range(seed, seed + count):
            case = FORMS[form](Draw(f"{form}/{number}"))
            for entry in [*remat.algorithms(case.document["kind"], available=True), None]:
                name = "auto" if entry is None else entry.name
                if not only or name in only:
                    yield f"{form}/{number}", case, name


def known_overruns() -> Iterator[tuple[str, Case, str, float]]:
    """Yield (name, instance, algorithm, limit) of solves that once took far longer."""
    adjoint: Document = {"schema": "remat.instance/1", "kind": "adjoint"}
    levels = [{"name": "ram", "slots": 10}, {"name": "disk", "slots": 300, "write_time": 2, "read_time": 2}]
    two = {steps: Case(adjoint | {"steps": steps, "storage": levels}) for steps in (3000, 5000)}
    draw = random.Random("known")
    yield "two levels, 3000 steps", two[3000], "dag-offload-best", 6.0
    yield "adjoint, 800 steps", Case(adjoint | {"steps": 800}, "10%"), "dag-offload-best", 6.0
    long = Case(adjoint | {"steps": 2000}, "10%")
    yield "adjoint, 2000 steps", long, "poet", 6.0
    yield "adjoint, 2000 steps", long, "treewidth", 6.0
    import remat

    seismic = Case(json.loads(Path(remat.examples()["adjoint/seismic_ram_disk"]).read_text()), 60)
    for seconds in (0.3, 2.0, 10.0):
        yield "seismic_ram_disk", seismic, "auto", seconds
    yield "graph, 3000 tasks", _graph(draw, 3000, None), "dag-order-exact", 3.0
    yield "graph, 1500 tasks, a host", _graph(draw, 1500, with_host()), "dag-order-exact", 3.0
    for name in ("fixed", "recompute-all", "dag-offload-best"):
        yield "two levels, 5000 steps", two[5000], name, 3.0
    layer = {"forward_time": 10, "backward_time": 20, "output_size": 4, "saved_size": 40, "parameter_size": 50}
    cluster = {"devices": [{"name": "gpu", "count": 16}], "levels": [{"bandwidth": 5}]}
    large = {"schema": "remat.instance/3", "kind": "pipeline", "layers": [layer | {"repeat": 48}], "cluster": cluster}
    yield "pipeline, 48 layers, 64 batches", Case(large | {"micro_batches": 64}, 2600), "adapipe", 3.0
    for seconds in (5.0, 40.0):
        yield "pipeline, 48 layers, 64 batches", Case(large | {"micro_batches": 64}, 2600), EXPLAINED, seconds
    impatient = _graph(draw, 60, None)
    yield "graph, 60 tasks, patience 2 s", replace(impatient, budget="25%", arguments={"patience": 2.0}), "auto", 20.0


def _graph(draw: random.Random, count: int, machine: Document | None) -> Case:
    tasks = [
        {"id": f"t{k}", "time": 1, "writes": [f"v{k}"], "reads": sorted({f"v{draw.randrange(k)}" for _ in range(2)})}
        if k
        else {"id": "t0", "time": 1, "writes": ["v0"]}
        for k in range(count)
    ]
    values = [{"id": f"v{k}", "size": draw.randint(1, 100)} for k in range(count)]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}
    return Case(document if machine is None else document | {"machine": machine}, "50%")


def run(chosen: Iterator[tuple[str, Case, str, float]], store: Path | None = None, *, every: bool = False) -> None:
    """Print the worst ratio of each algorithm, and all solves that took too long."""
    kept, rows = Store.at(store), list[list[Any]]()
    worst: dict[str, tuple[float, int, int]] = {}
    for name, case, algorithm, seconds in chosen:
        key = f"{name} {algorithm} {seconds:g}"
        if key not in kept.known:
            kept.add(key, measured(case, algorithm, seconds))
        found = kept.known[key]
        part = ratio(found, seconds)
        answered = found["status"] in ("optimal", "feasible")
        share, solved, total = worst.get(algorithm, (0.0, 0, 0))
        worst[algorithm] = (max(part, share), solved + answered, total + 1)
        if part > 1 or every:
            rows.append(
                [
                    name,
                    algorithm,
                    seconds,
                    found["cpu"],
                    found["wall"],
                    part,
                    found["status"],
                    found["where"],
                    found["says"],
                ]
            )
    ranked = sorted(worst.items(), key=lambda entry: -entry[1][0])
    by_name = [[name, share, f"{solved}/{total}"] for name, (share, solved, total) in ranked]
    table("Worst time, as a multiple of 1.1 T + 1 s", ["algorithm", "ratio", "schedules"], by_name)
    header = ["instance", "algorithm", "limit s", "CPU s", "wall s", "ratio", "status", "where", "says"]
    over = sum(float(row[5]) > 1 for row in rows)
    table(f"Limits overrun: {over} of {sum(total for _, _, total in worst.values())}", header, rows)


def preload() -> None:
    """Import beforehand what solves import, so that each forked process has it."""
    import importlib

    import remat

    for entry in remat.algorithms(available=True):
        with suppress(ImportError):
            importlib.import_module(entry.solver.partition(":")[0])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_limits", description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="*", default=[1.0, 3.0])
    parser.add_argument("--count", type=int, default=1, help="instances of each form")
    parser.add_argument("--seed", type=int, default=0, help="number of the first instance")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS), metavar="FORM")
    parser.add_argument("--only", nargs="*", default=[], help="algorithms")
    parser.add_argument("--store", type=Path, default=None, help="where measurements are kept")
    parser.add_argument("--table", action="store_true", help="the known overruns")
    given = parser.parse_args()
    CpuClock().install()
    preload()
    if given.table:
        run((row for row in known_overruns() if not given.only or row[2] in given.only), given.store, every=True)
        return
    drawn = solves(given.forms, given.only, given.count, given.seed)
    run(((*solve, seconds) for solve in drawn for seconds in given.seconds), given.store)


if __name__ == "__main__":
    main()
