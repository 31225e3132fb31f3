"""Exhaustive search over placements of a stream: the processor of each task, and the load of each resource.

Written from the definitions alone. A task runs in the memory of its processor, which must hold its parameters. Inputs
without a local producer are transferred. On a star they cross the hub: once out of one of the producers' memories, and
once into each memory that reads them. On other machines they use a direct link from a producer's memory. A time per
sample is possible if no processor and no channel is busy for longer, on average over the samples.

Bytes are those of parameters, plus the reads and writes of one running task. Values in transit need more, so these
placements are a lower bound.
"""

import itertools
from fractions import Fraction

from . import lowering


def least(document, *, samples=1, again=False, contiguous=False):
    """Return the minimum time per sample over placements of `samples` samples; None if parameters do not fit.

    `again`: tasks may run in several places for one sample. `contiguous`: in some order of the processors, no value
    flows backward (except for tasks of the backward phase).
    """
    machine = lowering.machine(document)
    graph = lowering.lower({key: value for key, value in document.items() if key != "stream"}, machine)
    names = list(graph.tasks)
    choices = [list(_choices(graph.tasks[name], machine, again)) for name in names]
    ways = {}
    for homes in itertools.product(*choices):
        where = dict(zip(names, homes, strict=True))
        if contiguous and not _in_order(document, graph, where):
            continue
        lying = {
            value: {machine.processors[p] for name in names if value in graph.tasks[name].reads for p in where[name]}
            for value in graph.placeable
        }
        if any(len(memories) > graph.most.get(value, graph.copies) for value, memories in lying.items()):
            continue
        needs = (
            tuple(sorted((value, tuple(sorted(own))) for value, own in lying.items())),
            tuple(sorted(_working(graph, machine, where).items())),
        )
        ways.setdefault(needs, []).extend(_loads(graph, machine, where))
    best = None
    options = [
        (dict(lying), dict(working), loads)
        for (lying, working), listed in ways.items()
        for loads in _undominated(listed)
    ]
    for chosen in itertools.combinations_with_replacement(options, samples):
        lying = {value: set() for value in graph.placeable}
        working = {}
        for one, more, _ in chosen:
            for value, memories in one.items():
                lying[value] |= set(memories)
            for memory, size in more.items():
                working[memory] = max(size, working.get(memory, 0))
        if not _fits(graph, machine, lying, working):
            continue
        busy = {}
        for _, _, loads in chosen:
            for resource, time in loads.items():
                busy[resource] = busy.get(resource, 0) + Fraction(time)
        time = max(busy.values(), default=Fraction(0)) / samples
        best = time if best is None else min(best, time)
    return best


def _choices(task, machine, again):
    able = [
        name
        for name in machine.processors
        if (task.on is None or name in task.on) and (task.times is None or machine.types[name] in task.times)
    ]
    for count in range(1, len(able) + 1 if again else 2):
        yield from itertools.combinations(able, count)


def _in_order(document, graph, where):
    """Whether the processors can be put into an order in which nothing that is read goes back."""
    backward = {task["id"] for task in document["tasks"] if task.get("phase") == "backward"}
    maker = {value: name for name, task in graph.tasks.items() for value in task.writes}
    edges = set()
    for name, task in graph.tasks.items():
        for value in task.reads:
            before = maker.get(value)
            if before is not None and name not in backward and before not in backward:
                edges |= {(one, other) for one in where[before] for other in where[name] if one != other}
    left = {end for edge in edges for end in edge}
    while left:
        first = {node for node in left if not any(other == node and one in left for one, other in edges)}
        if not first:
            return False
        left -= first
    return True


def _loads(graph, machine, where):
    """Yield what a sample keeps busy, for each choice of where values leave."""
    own = {}
    for name, processors in where.items():
        for processor in processors:
            kinds = [machine.types[processor]] if graph.tasks[name].times is not None else []
            time = lowering.run_time(graph.tasks[name], 1, machine.speeds.get(processor, 1), kinds)
            own[processor] = own.get(processor, 0) + time
    memories = {name: {machine.processors[p] for p in processors} for name, processors in where.items()}
    hub = _hub(machine)
    sent = []
    for value in graph.values:
        makers = [name for name, task in graph.tasks.items() if value in task.writes]
        made = set().union(*(memories[name] for name in makers)) if makers else set()
        read = set().union(*(memories[name] for name, task in graph.tasks.items() if value in task.reads))
        missing = read - made
        if not makers or not missing:
            continue
        if hub is None:
            sent.append([[(one, target) for target in sorted(missing)] for one in sorted(made)])
            sent[-1] = [(value, ways) for ways in sent[-1]]
            continue
        into = [(hub, target) for target in sorted(missing) if target != hub]
        out = [[]] if hub in made else [[(one, hub)] for one in sorted(made)]
        sent.append([(value, leaving + into) for leaving in out])
    for chosen in itertools.product(*sent):
        loads = dict(own)
        for value, ways in chosen:
            for source, target in ways:
                link = machine.link(source, target)
                took = Fraction(link.duration(graph.values[value], graph.ratios.get(value)))
                for resource in dict.fromkeys((link.channel, *link.also)):
                    loads[resource] = loads.get(resource, 0) + took
        yield loads


def _hub(machine):
    common = set(machine.memories)
    for link in machine.links:
        common &= {link.source, link.target}
    return min(common) if common and machine.links else None


def _undominated(listed):
    """Leave out loads that are no less than others everywhere."""
    found = []
    for loads in listed:
        if any(all(loads.get(key, 0) >= time for key, time in other.items()) for other in found):
            continue
        found = [other for other in found if not all(other.get(key, 0) >= time for key, time in loads.items())]
        found.append(loads)
    return found


def _working(graph, machine, where):
    """Return for each memory the maximum bytes that a task reads and writes, without parameters."""
    found = {}
    for name, processors in where.items():
        task = graph.tasks[name]
        size = sum(graph.values[value] for value in (*task.reads, *task.writes) if value not in graph.placeable)
        for processor in processors:
            memory = machine.processors[processor]
            found[memory] = max(found.get(memory, 0), size + task.workspace)
    return found


def _fits(graph, machine, lying, working):
    held = {memory: machine.static.get(memory, 0) for memory in machine.memories}
    held[machine.first] += graph.static
    for value, memories in lying.items():
        if len(memories) > graph.most.get(value, graph.copies):
            return False
        for memory in memories:
            held[memory] += graph.values[value]
    return all(
        size is None or held[memory] + working.get(memory, 0) <= size for memory, size in machine.memories.items()
    )
