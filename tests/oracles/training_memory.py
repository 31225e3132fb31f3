"""The bytes of each kind of training memory at a peak, replayed from the steps by name."""

import re

from remat.schedule.document import Copy, Run

OF_LETTER = {"w": "parameters", "g": "gradients", "o": "optimizer states"}


def recounted(result, memory):
    """The bytes of each kind of training memory just after the step that sets the peak began, step by step."""
    where = {processor.name: result.machine.memories[processor.memory].name for processor in result.machine.processors}
    sizes = {name: int(size) for name, size in zip(result.graph.values, result.graph.size, strict=True)}
    held = {result.graph.values[p.value] for p in result.graph.inputs if p.memory == memory}
    report = result.report
    peak = report.peaks[memory].step
    now = report.start[peak]
    events = []
    for k, step in enumerate(result.steps):
        if report.start[k] < now or (k <= peak and report.start[k] <= now):
            events.append((report.start[k], 1, k, step, True))
            if k != peak and report.end[k] <= now:
                events.append((report.end[k], 0 if report.end[k] > report.start[k] else 1, k, step, False))
    work = {}
    for _, _, k, step, begins in sorted(events, key=lambda one: (one[0], one[1], one[2], not one[4])):
        if isinstance(step, Run):
            task = result.graph.task(step.task)
            if where[step.on[0] if step.on else result.machine.processors[0].name] != memory:
                continue
            if begins:
                held |= {result.graph.values[value] for value in result.graph.writes[task].tolist()}
                work[k] = int(result.graph.workspace[task])
            else:
                held -= set(step.drop)
                work.pop(k, None)
        elif isinstance(step, Copy):
            if begins and step.target == memory:
                held.add(step.value)
            elif not begins and step.source == memory and step.drop:
                held.discard(step.value)
        elif not begins and step.memory == memory:
            held -= set(step.drop)
    found = {}
    for name in held:
        term = OF_LETTER.get(re.match("[a-z]+", name)[0], "activations")
        found[term] = found.get(term, 0) + sizes[name]
    found["workspace"] = sum(work.values())
    assert sum(found.values()) == report.peaks[memory].size
    return {term: size for term, size in found.items() if size}
