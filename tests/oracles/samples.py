"""Judge a pattern of samples by unrolling it: the steps of many samples, before the plain referee.

Readings of the format where it is brief
----------------------------------------
- Sample m of the stream does what the pattern says for sample ``m % K`` of a period, in period ``m // K``; entries of
  one instant are listed: those that take no time first, then those that hold their way for none; by shift, then as in
  the pattern.
- A value of a sample is dropped in a memory by the step that uses it last there: that of the latest end, of these of
  the latest start, of these the last one listed. A copy cannot drop what it brings: that stays.
- The stream is long enough when two samples that touch are both in it: more periods than the largest shift, and two.
- An input that is copied is a bad-step.
- Bytes that never go are a capacity violation: in a stream twice as long, the peak is larger.
"""

from . import lowering, referee
from .actions import read_step


class Verdict:
    """What unrolling says: whether the pattern is one, its peaks, and its time per sample."""

    def __init__(self, rules, peaks, time_per_sample, latency):
        self.rules, self.peaks, self.latency = rules, peaks, latency
        self.time_per_sample = time_per_sample

    @property
    def ok(self):
        """Whether no rule is broken."""
        return not self.rules


def judge(document, schedule):
    """Judge a schedule document with `initial`, `period` and `pattern` for a `dag` with a `stream`."""
    pattern, period = schedule["pattern"], schedule["period"]
    samples = 1 + max(entry.get("sample", 0) for entry in pattern)
    rounds = 2 + max(entry["shift"] for entry in pattern)
    machine = lowering.machine(document)
    inputs = {entry if isinstance(entry, str) else entry["value"] for entry in document.get("inputs", [])}
    rules = {"bad-step" for entry in pattern if entry.get("copy") in inputs}
    reports = []
    for count in (rounds * samples, 2 * rounds * samples):
        unrolled = document | {"stream": count}
        steps = unroll(unrolled, machine, pattern, period, samples, inputs)
        reports.append(referee.check(unrolled, {"initial": schedule.get("initial", {}), "steps": steps}))
    short, long = reports
    rules |= {rule for _, rule in (*short.violations, *long.violations)}
    if short.peaks != long.peaks:
        rules.add("capacity")
    spans = {}
    for entry in pattern:
        task, start = entry.get("run"), entry["start"] + entry["shift"] * period
        end = start + _length(document, machine, entry, task)
        begun, ended = spans.get(entry.get("sample", 0), (start, end))
        spans[entry.get("sample", 0)] = (min(begun, start), max(ended, end))
    latency = max(end - start for start, end in spans.values())
    return Verdict(rules, short.peaks, lowering.ratio(period, samples), latency)


def _length(document, machine, entry, task):
    one = document | {"stream": 1}
    graph = lowering.lower(one, machine)
    action, _ = read_step(graph, machine, 0, _step(entry, 0, set()))
    return 0 if action is None else action.duration


def _step(entry, m, inputs):
    if "run" in entry:
        return {"run": f"{entry['run']}.{m}", "on": entry["on"]}
    name = entry["copy"] if entry["copy"] in inputs else f"{entry['copy']}.{m}"
    return {"copy": name, "from": entry["from"], "to": entry["to"]}


def unroll(document, machine, pattern, period, samples, inputs):
    """Return the steps of the samples of a document's stream."""
    graph = lowering.lower(document, machine)
    steps = []
    for m in range(document["stream"]):
        for index, entry in enumerate(pattern):
            if entry.get("sample", 0) == m % samples:
                start = entry["start"] + (entry["shift"] + m // samples) * period
                action, _ = read_step(graph, machine, 0, _step(entry, m, inputs))
                length, held = (0, 0) if action is None else (action.duration, action.duration - action.delay)
                steps.append((start, (length > 0) + (held > 0), entry["shift"], index, m, start + length, entry))
    steps.sort(key=lambda step: step[:5])
    last = {}
    for place, (start, _, _, _, m, end, entry) in enumerate(steps):
        if "run" in entry:
            task = graph.tasks.get(f"{entry['run']}.{m}")
            memory = machine.processors.get(entry["on"][0])
            used = [(memory, value) for value in (*task.reads, *task.writes)] if task else []
        else:
            name = f"{entry['copy']}.{m}"
            used = [(entry["from"], name), (entry["to"], name)]
        for where in used:
            if where[1] not in inputs:
                last[where] = max(last.get(where, (-1, -1, -1)), (end, start, place))
    listed = [dict(_step(entry, m, inputs), start=start) for start, _, _, _, m, _, entry in steps]
    for (memory, value), (_, _, place) in sorted(last.items()):
        step = listed[place]
        if "run" in step:
            step.setdefault("drop", []).append(value)
        elif memory == step["from"]:
            step["drop"] = True
    return listed
