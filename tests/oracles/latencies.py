"""The minimum makespan of a graph that runs once on several devices, by exhaustive search.

The class: each task runs once, in the memory of its processor, which holds its parameters. A missing input is copied
once to each memory from its producer's or initial memory, over a direct link, or on a star over the hub. List any
schedule of the class by start times. Starting each run and copy as soon as its resources and inputs are free in list
order is never slower. Bytes of values in transit are not counted.
"""

import itertools
import math

from . import lowering
from .placements import _choices, _fits, _hub, _working


def least(document):
    """Return the minimum makespan, or None if the parameters do not fit."""
    machine = lowering.machine(document)
    graph = lowering.lower(document, machine)
    names = list(graph.tasks)
    best = None
    for homes in itertools.product(*(list(_choices(graph.tasks[name], machine, False)) for name in names)):
        where = {name: processors[0] for name, processors in zip(names, homes, strict=True)}
        lying = {value: set() for value in graph.placeable}
        for name in names:
            for value in graph.tasks[name].reads:
                if value in lying:
                    lying[value].add(machine.processors[where[name]])
        working = _working(graph, machine, {name: (processor,) for name, processor in where.items()})
        if not _fits(graph, machine, lying, working):
            continue
        for jobs in _jobs(graph, machine, where):
            time = _shortest(jobs)
            best = time if best is None else min(best, time)
    return best


def _jobs(graph, machine, where):
    """Yield the runs and copies of a placement as (held, length, later, waits)."""
    hub = _hub(machine)
    jobs, made = {}, {}
    for name, processor in where.items():
        task = graph.tasks[name]
        kinds = [machine.types[processor]] if task.times is not None else []
        length = lowering.run_time(task, 1, machine.speeds.get(processor, 1), kinds)
        jobs["run", name] = [(processor,), length, 0, set()]
        for value in task.writes:
            made[value] = (machine.processors[processor], ("run", name))
    for value, memory in graph.inputs:
        made.setdefault(value, (memory, None))
    wanted = [
        (value, machine.processors[where[name]], ("run", name)) for name in where for value in graph.tasks[name].reads
    ]
    wanted += [(value, memory, None) for value, memory in graph.outputs]
    for value, memory, reader in wanted:
        if value in graph.placeable:
            continue
        home, maker = made[value]
        way = [] if home == memory else [(home, memory)]
        if way and hub is not None and hub not in (home, memory):
            way = [(home, hub), (hub, memory)]
        last = maker
        for source, target in way:
            link = machine.link(source, target)
            key = ("copy", value, target)
            held = tuple(dict.fromkeys((link.channel, *link.also)))
            took = link.duration(graph.values[value], graph.ratios.get(value))
            jobs.setdefault(key, [held, took, link.delay, {last} - {None}])
            last = key
        if reader is not None and last is not None:
            jobs[reader][3].add(last)
    yield jobs


def _shortest(jobs):
    """Return the minimum completion time over all orders."""
    best = math.inf

    def go(done, free, latest):
        nonlocal best
        if latest >= best:
            return
        if len(done) == len(jobs):
            best = latest
            return
        for key, (held, length, later, waits) in jobs.items():
            if key in done or not waits <= done.keys():
                continue
            start = max([done[before] for before in waits] + [free.get(resource, 0) for resource in held], default=0)
            more = dict.fromkeys(held, start + length)
            go(done | {key: start + length + later}, free | more, max(latest, start + length + later))

    go({}, {}, 0)
    return best
