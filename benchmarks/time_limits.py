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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from benchmarks.harness import Store, table

Document = dict[str, Any]

SHARE, SECONDS = 1.1, 1.0
"""A limit of T is kept where a solve takes at most `SHARE` T + `SECONDS`."""

KILLED_AT = 20.0
"""Multiple of the limit at which a process is killed."""

SAMPLE = 0.05
"""Seconds between two readings of the CPU time of child processes."""


# --- instances --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An instance document and the budgets with which it is solved."""

    document: Document
    budget: Any = None
    arguments: Document = field(default_factory=dict[str, Any])


def _times(draw: random.Random, count: int) -> list[int]:
    return [draw.randint(1, 100) for _ in range(count)]


def _count(draw: random.Random, most: int = 10_000) -> int:
    return draw.choice([size for size in (1000, 2000, 3000, 5000, 10_000) if size <= most])


def _share(draw: random.Random) -> str:
    return f"{draw.choice([5, 15, 30, 60, 90])}%"


def _links(one: str, other: str, **figures: Any) -> list[Document]:
    return [{"source": source, "target": target, **figures} for source, target in ((one, other), (other, one))]


def _host(*, processors: int = 1) -> Document:
    return {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device", "count": processors}],
        "links": _links("device", "host", bandwidth=2),
    }


def _adjoint(draw: random.Random, *, own: bool = False, tape: bool = False, levels: int = 0) -> Case:
    count = _count(draw)
    steps: Any = count
    if own:
        steps = [
            {"forward_time": draw.randint(1, 9), "backward_time": draw.randint(1, 9), "state_size": draw.randint(1, 9)}
            for _ in range(count)
        ]
    document: Document = {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps}
    if tape:
        document |= {"tape_size": 3, "tape_time": 2}
    slots = (draw.choice([5, 30, 200]), draw.choice([20, 100]), draw.choice([100, 1000, count]))
    quick = {"name": "memory", "slots": slots[0]}
    slower = [{"name": f"level{k}", "slots": slots[k], "write_time": 2 * k, "read_time": k} for k in range(1, levels)]
    if levels and draw.random() < 0.4:
        slower = [level | {"channel": "disk"} for level in slower]
    if levels:
        return Case(document | {"storage": [quick, *slower]})
    return Case(document, draw.choice(["5%", "30%", "1%"]))


def _chain(draw: random.Random, *, host: bool = False, variants: bool = False, parameters: bool = False) -> Case:
    kinds = []
    for _ in range(20):
        stage: Document = {
            "forward_time": draw.randint(1, 100),
            "backward_time": draw.randint(1, 200),
            "output_size": draw.randint(1, 100),
            "saved_size": draw.randint(0, 300),
        }
        if variants:
            stage["variants"] = [{}, {"saved_size": draw.randint(0, 100), "backward_time": draw.randint(100, 300)}]
        if parameters:
            stage |= {"parameter_size": draw.randint(1, 100), "optimizer_size": 200, "update_time": 3}
        kinds.append(stage)
    stages = [draw.choice(kinds) for _ in range(_count(draw))]
    schema = "remat.instance/2" if parameters else "remat.instance/1"
    document: Document = {"schema": schema, "kind": "chain", "input_size": 10, "stages": stages}
    if host:
        document["machine"] = _host()
        if parameters and draw.random() < 0.5:
            document["optimizer_memory"] = "host"
    return Case(document, _share(draw))


def _dag(draw: random.Random, machine: Document | None = None, most: int = 10_000) -> Case:
    count = _count(draw, most)
    width, back = draw.choice([1, 2, 3]), draw.choice([3, 10, 100])
    tasks, values = [], []
    for k in range(count):
        reads = sorted({f"v{k - draw.randint(1, min(k, back))}" for _ in range(width)}) if k else []
        tasks.append({"id": f"t{k}", "time": draw.randint(1, 100), "reads": reads, "writes": [f"v{k}"]})
        values.append({"id": f"v{k}", "size": draw.randint(1, 100)})
    document: Document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "values": values}
    if draw.random() < 0.5:
        document["outputs"] = [f"v{count - 1}"]
    if machine is not None:
        document["machine"] = machine
    return Case(document, _share(draw))


def _training(draw: random.Random, machine: Document | None = None) -> Case:
    """Draw a network's forward and backward, with skip connections, as a task graph."""
    layers = _count(draw) // 2
    tasks: list[Document] = []
    sizes = {"x0": 10}
    for k in range(1, layers + 1):
        skip = [f"x{draw.randrange(max(0, k - 9), k)}"] if draw.random() < 0.3 else []
        reads = list(dict.fromkeys([f"x{k - 1}", *skip]))
        tasks.append({"id": f"F{k}", "time": draw.randint(1, 50), "reads": reads, "writes": [f"x{k}"]})
        sizes[f"x{k}"] = draw.randint(1, 100)
    sizes[f"y{layers}"] = 1
    tasks.append({"id": "loss", "time": 1, "reads": [f"x{layers}"], "writes": [f"y{layers}"]})
    for k in range(layers, 0, -1):
        reads = [*tasks[k - 1]["reads"], f"x{k}", f"y{k}"]
        tasks.append({"id": f"B{k}", "time": draw.randint(1, 99), "reads": reads, "writes": [f"y{k - 1}"]})
        sizes[f"y{k - 1}"] = draw.randint(1, 100)
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    document: Document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "values": values}
    document |= {"inputs": ["x0"], "outputs": ["y0"]}
    if machine is not None:
        document["machine"] = machine
    return Case(document, _share(draw))


def _processors() -> Document:
    processors = [{"name": "fast", "memory": "device", "count": 3}, {"name": "slow", "memory": "device", "speed": 0.5}]
    return {"memories": [{"name": "device"}], "processors": processors}


def _tree(draw: random.Random, machine: Document | None = None) -> Case:
    count, back = _count(draw), draw.choice([1, 3, 100, 10_000])
    parent = [-1, *(draw.randint(max(0, node - back), node - 1) for node in range(1, count))]
    document: Document = {"schema": "remat.instance/2", "kind": "tree", "parent": parent}
    document |= {"output_size": _times(draw, count), "time": _times(draw, count)}
    if machine is not None:
        document["machine"] = machine
    return Case(document, _share(draw))


def _disk() -> Document:
    machine = _host()
    return machine | {
        "memories": [*machine["memories"], {"name": "disk"}],
        "links": [*machine["links"], *_links("host", "disk", bandwidth=0.5)],
    }


def _pipeline(draw: random.Random, *, host: bool = False, forwards: bool = False) -> Case:
    layers, devices, batches = draw.choice([(24, 8, 32), (48, 16, 64), (96, 16, 64), (64, 8, 128), (48, 8, 256)])
    kinds = []
    for _ in range(4):
        layer = {"forward_time": draw.randint(5, 20), "output_size": draw.randint(1, 9), "parameter_size": 50}
        if not forwards:
            layer |= {"backward_time": draw.randint(10, 40), "saved_size": draw.randint(5, 60)}
        kinds.append(layer)
    listed = [draw.choice(kinds) for _ in range(layers)]
    if draw.random() < 0.4:
        listed = [kinds[0] | {"repeat": layers}]
    cluster: Document = {"devices": [{"name": "gpu", "count": devices}], "levels": [{"bandwidth": 5}]}
    if host:
        cluster["host"] = {"bandwidth": 5}
    document: Document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": listed, "cluster": cluster}
    document["micro_batches"] = batches
    if forwards:
        document["weights"] = "fixed"
    kept = sum(layer.get("saved_size", 9) * layer.get("repeat", 1) for layer in listed) // devices
    states = 4 * 50 * layers // devices
    return Case(document, None if forwards else states + kept * draw.choice([2, devices // 2, devices, 4 * devices]))


def _join(draw: random.Random) -> Case:
    chains = []
    for _ in range(draw.choice([2, 3])):
        stages = [
            {"forward_time": draw.randint(1, 9), "backward_time": draw.randint(1, 9), "output_size": draw.randint(1, 9)}
            for _ in range(_count(draw, 5000))
        ]
        chains.append({"input_size": 5, "stages": stages})
    return Case({"schema": "remat.instance/3", "kind": "join", "chains": chains}, _share(draw))


def _stream(draw: random.Random) -> Case:
    document = _dag(draw, most=2000).document | {"schema": "remat.instance/3", "stream": 4}
    document.pop("outputs", None)
    names = [f"m{k}" for k in range(4)]
    links = [{"source": a, "target": b, "bandwidth": 5} for a in names for b in names if a != b]
    document["machine"] = {
        "memories": [{"name": name} for name in names],
        "processors": [{"name": f"p{k}", "memory": names[k]} for k in range(4)],
        "links": links,
    }
    return Case(document)


FORMS: dict[str, Callable[[random.Random], Case]] = {
    "adjoint": lambda draw: _adjoint(draw),
    "adjoint-levels": lambda draw: _adjoint(draw, levels=draw.choice([2, 3])),
    "adjoint-unequal": lambda draw: _adjoint(draw, own=True, levels=draw.choice([0, 2])),
    "adjoint-tape": lambda draw: _adjoint(draw, tape=True, levels=draw.choice([0, 1, 2])),
    "chain": lambda draw: _chain(draw),
    "chain-host": lambda draw: _chain(draw, host=True),
    "chain-variants": lambda draw: _chain(draw, variants=True, host=draw.random() < 0.5),
    "chain-parameters": lambda draw: _chain(draw, parameters=True, host=True),
    "dag": lambda draw: draw.choice([_dag, _training])(draw),
    "dag-host": lambda draw: draw.choice([_dag, _training])(draw, _host()),
    "dag-processors": lambda draw: draw.choice([_dag, _training])(draw, _processors()),
    "tree": lambda draw: _tree(draw),
    "tree-disk": lambda draw: _tree(draw, _disk()),
    "tree-processors": lambda draw: _tree(draw, _processors()),
    "pipeline": lambda draw: _pipeline(draw),
    "pipeline-host": lambda draw: _pipeline(draw, host=True),
    "pipeline-forwards": lambda draw: _pipeline(draw, forwards=True),
    "join": _join,
    "stream": _stream,
}
"""Each part of the benchmark, and what draws its instances."""


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
    try:
        result = remat.solve(
            case.document,
            algorithm=algorithm,
            budget=case.budget,
            time_limit=seconds,
            **case.arguments,
        )
        said = {"status": str(result.status), "says": "; ".join([str(result.termination), *result.notes[:1]])}
    except remat.RematError as error:
        said = {"status": "refused", "says": str(error)}
    except BaseException as error:
        said = {"status": "failed", "says": f"{type(error).__name__}: {error}"}
    text = json.dumps(said | {"cpu": clock() - begun, "says": said["says"][:300]})
    os.write(writing, text.encode())
    os._exit(0)


def ratio(found: dict[str, Any], seconds: float) -> float:
    """Return what a solve took, as a multiple of what it may take."""
    return float(found["cpu"]) / (SHARE * seconds + SECONDS)


# --- all of them ------------------------------------------------------------------------------------------------------


def solves(forms: Sequence[str], only: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, Case, str]]:
    """Yield (name of the instance, instance, algorithm)."""
    import remat

    for form in forms:
        for number in range(seed, seed + count):
            case = FORMS[form](random.Random(f"{form}/{number}"))
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
    yield "graph, 1500 tasks, a host", _graph(draw, 1500, _host()), "dag-order-exact", 3.0
    for name in ("fixed", "recompute-all", "dag-offload-best"):
        yield "two levels, 5000 steps", two[5000], name, 3.0
    layer = {"forward_time": 10, "backward_time": 20, "output_size": 4, "saved_size": 40, "parameter_size": 50}
    cluster = {"devices": [{"name": "gpu", "count": 16}], "levels": [{"bandwidth": 5}]}
    large = {"schema": "remat.instance/3", "kind": "pipeline", "layers": [layer | {"repeat": 48}], "cluster": cluster}
    yield "pipeline, 48 layers, 64 batches", Case(large | {"micro_batches": 64}, 2600), "adapipe", 3.0
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
