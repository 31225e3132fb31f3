"""Judge a pattern of samples by writing it out: the steps of many samples, before the plain referee.

Samples are those of a `dag` with a `stream`, or the micro-batches of a pipeline whose parameters never change.

Readings of the format where it is brief
----------------------------------------
- Sample m of the stream follows the pattern of sample ``m % K`` of a period, in period ``m // K``. Entries of one
  instant are listed: zero-time steps first, then transfers that occupy their link for no time; then by shift, then as
  in the pattern.
- A value of a sample is dropped in a memory by its last use there: the step with the latest end, then the latest start,
  then the last one listed. A copy cannot drop the value that it brings, which stays.
- The stream is long enough when two samples that touch are both in it: more periods than the largest shift, and two.
- An input that is copied is a bad-step.
- Bytes that never go are a capacity violation: in a stream twice as long, the peak is larger.
"""

from . import lowering
from .actions import read_step
from .judging.simulation import clusters, in_turn
from .judging.steps import judge as judge_steps


def judge(document, schedule, budget=None, machine=None):
    """Judge a schedule document with `initial`, `period` and `pattern`.

    Parameters
    ----------
    document : dict
    schedule : dict
    budget : int or dict, optional
        As in `lowering.machine`.
    machine : Machine, optional
        In place of the instance's.

    Returns
    -------
    Report
        With the rules as they are called of steps.
    """
    pattern, period = schedule["pattern"], schedule["period"]
    samples = 1 + max((entry.get("sample", 0) for entry in pattern), default=0)
    machine = machine or lowering.machine(document, budget)
    one = lowering.lower(_of(document, 1), machine)
    inputs = {value for value, _ in one.inputs} | one.placeable
    spans = _spans(one, machine, schedule, inputs)
    # A pattern that touches no other period is still seen twice.
    rounds = 2 + max((entry["shift"] for entry in pattern), default=0)
    reports = []
    for count in (_count(document), rounds * samples, 2 * rounds * samples):
        graph = lowering.lower(_of(document, count), machine)
        steps = unroll(graph, machine, schedule, samples, count, inputs)
        reports.append(judge_steps(graph, machine, steps, schedule.get("initial") or {}, span=period))
    listed, short, long = reports
    rules = {rule for report in reports for rule in report.rules}
    rules |= {"bad-step" for entry in pattern if entry.get("copy") in inputs}
    if short.peaks != long.peaks:
        rules.add("capacity")
    listed.violations = [(None, rule) for rule in sorted(rules)]
    listed.steady_peaks = short.peaks
    listed.period, listed.time_per_sample = period, lowering.ratio(period, samples)
    listed.latency = max((end - start for start, end in spans), default=0)
    listed.in_flight = (_most_at_once(spans, period),)
    return listed


def _count(document):
    """Return how many samples are looked at."""
    return document["stream"] if document["kind"] == "dag" else document["micro_batches"]


def _of(document, count):
    return document | {"stream" if document["kind"] == "dag" else "micro_batches": count}


def _spans(graph, machine, schedule, inputs):
    """Return when the samples of the first period begin and end."""
    spans = {}
    for entry in schedule["pattern"]:
        start = entry["start"] + entry["shift"] * schedule["period"]
        action, _ = read_step(graph, machine, 0, _step(entry, 0, inputs))
        end = start + (0 if action is None else action.duration)
        begun, ended = spans.get(entry.get("sample", 0), (start, end))
        spans[entry.get("sample", 0)] = (min(begun, start), max(ended, end))
    return list(spans.values())


def _most_at_once(spans, period):
    most = 0
    longest = max((end - start for start, end in spans), default=0)
    turns = int(longest // period) + 2
    for now, _ in spans:
        there = [start + k * period <= now < end + k * period for start, end in spans for k in range(-turns, turns + 1)]
        most = max(most, sum(there))
    return most


def _step(entry, m, inputs):
    if "run" in entry:
        return {"run": f"{entry['run']}.{m}", "on": entry["on"]}
    name = entry["copy"] if entry["copy"] in inputs else f"{entry['copy']}.{m}"
    return {"copy": name, "from": entry["from"], "to": entry["to"]}


def unroll(graph, machine, schedule, samples, count, inputs):
    """Return the steps of so many samples of a stream."""
    steps = []
    for m in range(count):
        for index, entry in enumerate(schedule["pattern"]):
            if entry.get("sample", 0) == m % samples:
                start = entry["start"] + (entry["shift"] + m // samples) * schedule["period"]
                action, _ = read_step(graph, machine, 0, _step(entry, m, inputs))
                length, held = (0, 0) if action is None else (action.duration, action.duration - action.delay)
                steps.append((start, start + held, start + length, (entry["shift"], index, m), entry))
    instant = clusters((time for step in steps for time in step[:3]), schedule["period"])
    steps.sort(key=lambda step: in_turn(instant, *step[:3], step[3]))
    last = {}
    for place, (start, _, end, (_, _, m), entry) in enumerate(steps):
        if "run" in entry:
            task = graph.tasks.get(f"{entry['run']}.{m}")
            memory = machine.processors.get(entry["on"][0])
            used = [(memory, value) for value in (*task.reads, *task.writes)] if task else []
        else:
            name = f"{entry['copy']}.{m}"
            used = [(entry["from"], name), (entry["to"], name)]
        for where in used:
            if where[1] not in inputs:
                last[where] = max(last.get(where, (-1, -1, -1)), (instant[end], instant[start], place))
    listed = [dict(_step(entry, m, inputs), start=start) for start, _, _, (_, _, m), entry in steps]
    for (memory, value), (_, _, place) in sorted(last.items()):
        step = listed[place]
        if "run" in step:
            step.setdefault("drop", []).append(value)
        elif memory == step["from"]:
            step["drop"] = True
    return listed
