"""Bytes moved, idle times, overlap and the recompute time of timed steps."""

import re
from collections import Counter


def count(graph, machine, actions, report):
    """Fill in transferred bytes, idle times and the recompute time."""
    report.transferred = {f"{link.source}->{link.target}": 0 for link in machine.links}
    report.idle = dict.fromkeys(machine.processors, report.makespan)
    report.idle |= {name: report.makespan for link in machine.links for name in (link.channel, *link.also)}
    run_time = 0
    for action in actions:
        if action.task is not None:
            run_time += graph.tasks[action.task].time
        if action.link is not None:
            report.transferred["->".join(action.link)] += sum(action.writes.values())
        if action.task is not None and graph.tasks[action.task].parts:
            places = action.around
            for way in zip(places, places[1:] + places[:1], strict=True):
                if machine.link(*way) is not None:
                    report.transferred["->".join(way)] += graph.tasks[action.task].sent
        for resource in action.resources:
            report.idle[resource] -= action.duration - action.delay
    report.recompute_time = run_time - no_recompute_time(graph)
    report.overlap = {link.channel: 0 for link in machine.links if link.channel not in machine.processors}
    report.overlap |= _overlaps(graph, actions, report.overlap)


def _overlaps(graph, actions, channels):
    """Return for how long each channel carries something while any processor runs something."""
    working, crossing = [], {channel: [] for channel in channels}
    for action in actions:
        interval = (action.start, action.released)
        task = graph.tasks[action.task] if action.task is not None else None
        if task is not None and (task.busy or not task.parts):
            working.append(interval)
        if action.link is not None or action.around:
            for name in set(action.resources) & set(channels):
                crossing[name].append(interval)
    working = _union(working)
    return {channel: _common(_union(intervals), working) for channel, intervals in crossing.items()}


def _union(intervals):
    """Return disjoint intervals, sorted, that cover the same times."""
    found = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _common(one, other):
    """Return how long two lists of disjoint, sorted intervals overlap."""
    total, i, j = 0, 0, 0
    while i < len(one) and j < len(other):
        total += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        i, j = (i + 1, j) if one[i][1] <= other[j][1] else (i, j + 1)
    return total


def no_recompute_time(graph):
    """Return the time of each required task and of the cheapest producer of each other needed value, once.

    Of a chain's variants (`B3.1`, `B3.2`, ...) those count that make the total least: a stage's choice does not
    depend on the others'.
    """
    variants = {}
    for name in graph.tasks:
        stage, dot, _ = name.partition(".")
        if dot and re.fullmatch("B[0-9]+", stage) and not graph.tasks[name].required:
            variants.setdefault(stage, []).append(name)
    chosen = {stage: names[0] for stage, names in variants.items()}
    for stage, names in variants.items():
        chosen[stage] = min(names, key=lambda name: _closure_time(graph, {**chosen, stage: name}.values()))
    return _closure_time(graph, chosen.values())


def _closure_time(graph, chosen):
    producers = {}
    for name, task in graph.tasks.items():
        for value in _first_made(task):
            producers.setdefault(value, []).append(name)
    needed, made, left = set(), {value for value, _ in graph.inputs}, [value for value, _ in graph.outputs]
    position = {value: number for number, value in enumerate(graph.values)}

    def add(name):
        needed.add(name)
        made.update(_first_made(graph.tasks[name]))
        left.extend(graph.tasks[name].reads)

    for name, task in graph.tasks.items():
        if task.required or task.once or name in set(chosen):
            add(name)
    open_choices = set()
    while left or open_choices:
        while left:  # values with one producer
            value = left.pop()
            makers = producers.get(value, []) if value not in made else []
            if len(makers) == 1:
                add(makers[0])
            elif makers:
                open_choices.add(value)
        open_choices = {value for value in open_choices if value not in made}
        if open_choices:  # one choice at a time: it may supply other values, too
            value = min(open_choices, key=position.__getitem__)
            add(min(producers[value], key=lambda name: graph.tasks[name].time))
    needed -= _redundant(graph, needed)
    return sum(task.time for name, task in graph.tasks.items() if name in needed)


def _redundant(graph, needed):
    """Return tasks, the dearest first, whose values others of the needed tasks write, too."""
    left = set(needed)
    writers = Counter(value for name in needed for value in graph.tasks[name].writes)
    writers.update(value for value, _ in graph.inputs)
    readers = Counter(value for name in needed for value in graph.tasks[name].reads)
    readers.update(value for value, _ in graph.outputs)
    optional = [name for name, task in graph.tasks.items() if name in needed and not (task.required or task.once)]
    for name in sorted(optional, key=lambda name: -graph.tasks[name].time):
        task = graph.tasks[name]
        if all(writers[value] > 1 or not readers[value] for value in task.writes) and _runnable(graph, left - {name}):
            left.remove(name)
            writers.subtract(task.writes)
            readers.subtract(task.reads)
    return needed - left


def _runnable(graph, names):
    """Whether tasks can run one after the other, and leave the outputs."""
    made, waiting = {value for value, _ in graph.inputs}, set(names)
    while ready := {name for name in waiting if made.issuperset(graph.tasks[name].reads)}:
        waiting -= ready
        made.update(value for name in ready for value in graph.tasks[name].writes)
    return not waiting and made.issuperset(value for value, _ in graph.outputs)


def _first_made(task):
    """Values that a task can be the first to write: one that it reads must be there already."""
    return set(task.writes) - set(task.reads)
