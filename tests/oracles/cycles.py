"""Judge a steady state of training steps by unrolling several steps.

Step k of training follows the schedule k periods later, on private values. A value handed on keeps the name of the
earlier step. Data arrive when the step begins: a producer in that memory makes them in no time. Values that are not
handed on are freed when the step ends.

Rules
-----
period-overlap
    A resource serves two at once.
period-precedence
    A value is absent, late or still in use.
capacity
    A middle step holds more bytes than the memory has, or leaves values that are not handed on.
"""

import math
from dataclasses import replace

from . import lowering
from .actions import read_step
from .judging.periodic import PERIODIC
from .judging.report import Report
from .judging.simulation import Simulation, check_resources, clusters, in_turn, instants_of
from .judging.steps import placed as placed_inputs


def steady(document, schedule, budget=None):
    """Return the broken rules, and the peak bytes of each memory in a middle step of the unrolled sequence."""
    machine = lowering.machine(document, budget)
    if schedule.get("machine") is not None:
        machine = lowering.read_machine(schedule["machine"])
    graph = lowering.lower(document, machine)
    period, steps = schedule["period"], schedule["steps"]
    placed, _ = placed_inputs(graph, machine, schedule.get("initial") or {})
    inputs = [*graph.inputs, *placed]
    lags = _lags(document, graph)
    ends = [read_step(graph, machine, index, step)[0].duration + step["start"] for index, step in enumerate(steps)]
    last = max(ends, default=0)
    warm = math.ceil(last / period) + max((lag for _, lag in lags.values()), default=1) + 1
    count = 2 * warm + 2

    def named(value, k):
        new, lag = lags.get(value, (None, 0))
        return f"{new}@{k - lag}" if new and k >= lag else f"{value}@{k}"

    feeders = {memory: f"feeder of {memory}" for memory in machine.memories}
    fed = replace(machine, processors={**machine.processors, **{name: memory for memory, name in feeders.items()}})
    tasks, values, begun, listed = {}, {}, [], []
    for k in range(count):
        shift = k * period
        values |= {f"{value}@{k}": size for value, size in graph.values.items()}
        for name, task in graph.tasks.items():
            parts = tuple(
                (tuple(named(v, k) for v in reads), tuple(named(v, k) for v in writes), place)
                for reads, writes, place in task.parts
            )
            tasks[f"{name}@{k}"] = replace(
                task,
                reads=tuple(named(v, k) for v in task.reads),
                writes=tuple(named(v, k) for v in task.writes),
                parts=parts,
            )
        for number, (value, memory) in enumerate(inputs):
            if value not in lags:
                tasks[f"feed {number}@{k}"] = lowering.Task(0, (), (f"{value}@{k}",))
                listed.append({"run": f"feed {number}@{k}", "on": [feeders[memory]], "start": shift})
            elif k < lags[value][1]:
                begun.append((f"{value}@{k}", memory))
        listed.extend(_shifted(step, named, k, shift) for step in steps)
        handed = {new for new, _ in lags.values()}
        for value, memory in graph.outputs:
            if value not in handed:
                listed.append({"drop": [f"{value}@{k}"], "memory": memory, "start": last + shift})
    whole = lowering.Graph(tasks, values, begun, static=graph.static)
    listed = _in_turn(whole, fed, listed)
    return _judged(whole, fed, listed, (warm * period, (warm + 1) * period), count * period)


def _in_turn(graph, machine, listed):
    """Sort steps by their starts; at one instant, those that take no time come first, as in all that is periodic."""
    times = []
    for index, step in enumerate(listed):
        action, _ = read_step(graph, machine, index, step)
        length, held = (0, 0) if action is None else (action.duration, action.duration - action.delay)
        times.append((step["start"], step["start"] + held, step["start"] + length))
    instant = clusters(time for own in times for time in own)
    order = sorted(range(len(listed)), key=lambda index: in_turn(instant, *times[index], index))
    return [listed[index] for index in order]


def _lags(document, graph):
    """Return what takes the place of each value that is handed on, and how many steps of training later."""
    late = 1 + document["staleness"]
    found = {}
    for value in graph.values:
        if value[0] in "wo" and f"n{value}" in graph.values:
            found[value] = f"n{value}", late if value[0] == "w" else 1
    return found


def _shifted(step, named, k, shift):
    step = step | {"start": step["start"] + shift}
    if "run" in step:
        step["run"] = f"{step['run']}@{k}"
    if "copy" in step:
        return step | {"copy": named(step["copy"], k)}
    if "drop" in step:
        step["drop"] = [named(value, k) for value in step["drop"]]
    return step


def _judged(graph, machine, steps, window, end):
    """Return the broken rules, and the peaks within a window of time."""
    report = Report()
    actions = []
    for index, step in enumerate(steps):
        action, rules = read_step(graph, machine, index, step)
        assert action is not None
        assert not rules
        action.start = step["start"]
        actions.append(action)
    instant = instants_of(actions)
    check_resources(actions, instant, report)
    simulation = Simulation(graph, machine, actions, instant, report)
    simulation.run()
    settled = {action.index for action in actions if window[0] <= action.start < end - window[0]}
    names = PERIODIC | {"capacity": "capacity"}
    broken = {names[rule] for index, rule in report.violations if rule in names and index in settled}
    peaks = dict.fromkeys(machine.memories, 0)
    for what, action, used in simulation.log:  # bytes only grow when something begins
        if what == "begin" and window[0] <= instant[action.start] < window[1]:
            peaks = {memory: max(most, used[memory]) for memory, most in peaks.items()}
    return broken, peaks
