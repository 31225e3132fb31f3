"""Judge a pattern of a pipeline whose micro-batches follow each other without end, by writing many of them out.

Rules
-----
initial-placement
    A layer is in no stage, or in several.
bad-step
    An operation that cannot be read, is there twice or not at all, is a half that the layers do not have, or is on a
    device whose type cannot run it; a transfer that is there twice.
period-overlap
    Two operations are on one device, or two transfers on one way, at once.
period-precedence
    What is read is not there, or not yet.
version-mismatch
    A stage keeps fewer versions than its micro-batches in flight need; with `double` more of these than are updated
    together.
capacity
    More bytes than a memory has.

Readings of the format where it is brief
----------------------------------------
- A stage's parameters take `versions` times their size throughout, gradients, optimizer states and what corrects for
  discrepancies once.
- A stage keeps at least one version.
- A micro-batch is in flight on a stage until its last half ends there; one is, even if all of it takes no time.
- At one instant, zero-time steps are listed first, then transfers that occupy their link for no time; steps of one
  micro-batch keep their order.
- The results of an operation are sent one by one; a transfer of a value without other readers takes no time.
- A value is freed after its last use in each memory.
"""

import math
import re
from dataclasses import dataclass, replace

from . import lowering
from .judging.periodic import PERIODIC
from .judging.report import Report
from .judging.simulation import clusters, in_turn
from .judging.steps import judge as judge_steps
from .orders.drops import with_drops
from .orders.operations import layers_of

ENTRY = re.compile(r"(F|BW|B|W)(\d+)")


@dataclass(frozen=True)
class _Piece:
    """A run or a transfer of micro-batch 0: `step` names tasks and values of that one."""

    step: dict
    start: float
    length: float
    held: float
    rank: int

    def of(self, batch, period):
        """Return the step of a micro-batch."""
        key = "run" if "run" in self.step else "copy"
        return self.step | {
            key: re.sub(r"\.0$", f".{batch}", self.step[key]),
            "start": self.start + batch * period,
        }


def _listed(pieces, count, period):
    """Return the steps of `count` micro-batches in order."""
    found = []
    for batch in range(count):
        for piece in pieces:
            step = piece.of(batch, period)
            ends = (step["start"] + piece.held, step["start"] + piece.length)
            found.append((step["start"], *ends, (batch, piece.rank), step))
    instant = clusters((time for one in found for time in one[:3]), period)
    return [one[4] for one in sorted(found, key=lambda one: in_turn(instant, *one[:4]))]


def judge(document, schedule, machine):
    """Judge a schedule document with `stages`, `period` and `pattern`.

    Parameters
    ----------
    document : dict
        A pipeline without end whose parameters change.
    schedule : dict
    machine : Machine

    Returns
    -------
    Report
    """
    stages = [(layers_of(stage["layers"]), stage["device"]) for stage in schedule["stages"]]
    graph = lowering.lower(document | {"micro_batches": 1}, machine)
    pieces, rules = _pieces(graph, machine, stages, schedule)
    if rules:
        return Report([(None, rule) for rule in sorted(rules)])
    period = schedule["period"]
    first, last = min(piece.start for piece in pieces), max(piece.start + piece.length for piece in pieces)
    many = math.ceil((last - first) / period) + 2
    flights = _flights(pieces, stages, period, machine)
    versions, rules = _versions(document, schedule, [most for most, _ in flights])
    reports = []
    for count in (document["micro_batches"], many):
        whole = lowering.lower(document | {"micro_batches": count}, machine)
        sizes, static = _with_versions(document, whole, machine, stages, versions)
        initial = {name: [_home(machine, stages, name)] for name in whole.placeable}
        listed = with_drops(whole, machine, _listed(pieces, count, period), is_sorted=True)
        own = replace(machine, static=static)
        reports.append(judge_steps(replace(whole, values=sizes), own, listed, initial, span=period))
    listed, long = reports
    rules |= {PERIODIC.get(rule, rule) for _, rule in (*listed.violations, *long.violations)}
    listed.violations = [(None, rule) for rule in sorted(rules)]
    listed.steady_peaks = long.peaks
    listed.period = listed.time_per_sample = period
    every = document.get("update_every") or 1
    listed.in_flight, listed.versions = tuple(most for most, _ in flights), tuple(versions)
    listed.staleness = tuple(_staleness(late, every) for _, late in flights)
    return listed


def _pieces(graph, machine, stages, schedule):
    """Return the steps of micro-batch 0, and the rules that the pattern itself breaks."""
    rules, pieces, seen, ran = set(), [], set(), set()
    every = sorted(int(name[2:].split(".")[0]) for name in graph.tasks if name.startswith("Fe"))
    if sorted(layer for layers, _ in stages for layer in layers) != every:
        return [], {"initial-placement"}
    for entry in schedule["pattern"]:
        kind = "run" if "run" in entry else "copy"
        match = ENTRY.fullmatch(entry[kind])
        if match is None or int(match[2]) >= len(stages) or (kind, entry[kind]) in seen:
            rules.add("bad-step")
            continue
        seen.add((kind, entry[kind]))
        at = entry["start"] + entry["shift"] * schedule["period"]
        tasks = _tasks_of(graph, stages[int(match[2])][0], match[1])
        if kind == "run":
            found = None if tasks is None or ran & set(tasks) else _runs(graph, machine, stages, match, tasks, at)
            ran |= set(tasks or ())
            rules |= {"bad-step"} if found is None else set()
        else:
            found = _copies(graph, machine, stages, int(match[2]), tasks or [], at)
        pieces += found or []
    if set(graph.tasks) - ran:
        rules.add("bad-step")
    return pieces, rules


def _tasks_of(graph, layers, phase):
    """Return the tasks of an operation in order; None if the layers lack these halves."""
    if phase == "F":
        return [f"Fe{layer}.0" for layer in layers]
    tasks = [f"{half}{layer}.0" for half in phase for layer in reversed(layers)]
    found = [name for name in tasks if name in graph.tasks]
    return None if "W" in phase and not any(name[0] == "W" for name in found) else found


def _runs(graph, machine, stages, match, tasks, at):
    device, found = stages[int(match[2])][1], []
    for name in tasks:
        time = lowering.run_time(graph.tasks[name], 1, machine.speeds.get(device, 1), [machine.types[device]])
        if time is None:
            return None
        found.append(_Piece({"run": name, "on": [device]}, at, time, time, _rank(stages, match[1], int(match[2]), 0)))
        at = at + time
    return found


def _rank(stages, phase, stage, late):
    """Return the position of an operation among those of its micro-batch: forwards, then backwards, then halves."""
    position = sorted(range(len(stages)), key=lambda one: stages[one][0]).index(stage)
    turn = {"F": 2 * position, "B": 4 * len(stages) - 2 * position, "BW": 4 * len(stages) - 2 * position}
    return turn.get(phase, 6 * len(stages)) + late


def _copies(graph, machine, stages, stage, tasks, at):
    """Return the transfers of what tasks have made to the devices that read it."""
    found, device = [], stages[stage][1]
    homes = {name: where for layers, where in stages for name in graph.tasks if _layer(name) in layers}
    source = machine.processors[device]
    for value in [value for name in tasks for value in graph.tasks[name].writes]:
        readers = [machine.processors[homes[name]] for name, task in graph.tasks.items() if value in task.reads]
        for target in dict.fromkeys(readers):
            if target != source:
                link = machine.link(source, target)
                held = link.duration(graph.values[value])
                step = {"copy": value, "from": link.source, "to": link.target}
                phase = "F" if tasks[0].startswith("F") else "B"
                found.append(_Piece(step, at, held + link.delay, held, _rank(stages, phase, stage, 1)))
                at = at + held
    return found


def _layer(name):
    return int(name.lstrip("FeBW").split(".")[0])


def _home(machine, stages, value):
    number = int(value[1:].split(".")[0])
    return next(machine.processors[device] for layers, device in stages if number in layers)


def _flights(pieces, stages, period, machine):
    """Return for each stage the maximum micro-batches in flight, and how many updates a forward precedes its own by."""
    found = []
    for layers, _ in stages:
        runs = [piece for piece in pieces if "run" in piece.step and _layer(piece.step["run"]) in layers]
        begin = min(piece.start for piece in runs if piece.step["run"].startswith("F"))
        end = max(piece.start + piece.length for piece in runs)
        exact = all(isinstance(one, int) for piece in pieces for one in (piece.start, piece.length))
        tolerance = 0 if exact else 1e-9 * period
        flight = 1
        while end - begin - flight * period > tolerance:
            flight += 1
        found.append((flight, flight - 1))
    return found


def _versions(document, schedule, flights):
    """Return how many versions each stage keeps, and the rules that are broken."""
    mode, rules = document["weights"], set()
    needed = [
        max(1, {"stash": most, "double": min(2, most), "single": 1, "predicted": min(2, most)}[mode])
        for most in flights
    ]
    given = [stage.get("versions", least) for stage, least in zip(schedule["stages"], needed, strict=True)]
    short = any(own < least for own, least in zip(given, needed, strict=True))
    if short or (mode == "double" and max(flights) > document["update_every"]):
        rules.add("version-mismatch")
    return given, rules


def _staleness(late, every):
    """Return the most changes between a forward and its own change: micro-batch m takes part in change m // every."""
    return max((m // every - max(0, m - late) // every for m in range(late, late + 2 * every)), default=0)


def _with_versions(document, graph, machine, stages, versions):
    """Return the sizes of values with all versions of parameters, and the resident bytes of each memory."""
    sizes, static = dict(graph.values), dict(machine.static)
    layers = [layer for layer in document["layers"] for _ in range(layer.get("repeat", 1))]
    for (own, device), count in zip(stages, versions, strict=True):
        memory = machine.processors[device]
        for number in own:
            if f"w{number}" in sizes:
                sizes[f"w{number}"] *= count
            static[memory] = static.get(memory, 0) + layers[number - 1].get("discrepancy_size", 0)
    return sizes, static
