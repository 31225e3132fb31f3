"""Exhaustive search over frontier-advancing schedules, for tiny graphs in one memory.

Stages end with the tasks that every schedule needs, in the reference order; in a stage, the tasks of earlier places
run at most once each, in the order of the places. Optional tasks take the earliest possible place. Behind
the last needed task there is one more stage without an end if there are outputs.
"""

import heapq
import itertools

from . import lowering
from .search import _Space


def needed(graph):
    """Names of the tasks that every schedule runs: required, or the only first maker of a value that is needed."""
    inputs = {value for value, _ in graph.inputs}
    makers = {}
    for name, task in graph.tasks.items():
        for value in set(task.writes):
            makers.setdefault(value, []).append(name)
    for value, names in makers.items():
        if len(names) > 1:
            makers[value] = [name for name in names if value not in graph.tasks[name].reads]
    must = {name for name, task in graph.tasks.items() if task.required or task.once}
    while True:
        wanted = {value for value, _ in graph.outputs} | {value for name in must for value in graph.tasks[name].reads}
        more = {makers[value][0] for value in wanted - inputs if len(makers.get(value, ())) == 1}
        if more <= must:
            return must
        must |= more


def order_of(graph, must, reference):
    """Return the task names in the class's order: ready optional tasks before the next required one."""
    available = {value for value, _ in graph.inputs}
    order, left = [], [name for name in graph.tasks if name not in must]
    for following in [*(name for name in reference if name in must), None]:
        while ready := [name for name in left if set(graph.tasks[name].reads) <= available]:
            order.append(ready[0])
            left.remove(ready[0])
            available |= set(graph.tasks[ready[0]].writes)
        if following is not None:
            order.append(following)
            available |= set(graph.tasks[following].writes)
    return order


def best(document, budget, reference, most_runs=None):
    """Return the minimum makespan of the frontier-advancing schedules within a budget, or None.

    `reference`: names of the needed tasks in the reference order. `most_runs`: limit on the runs of each task.
    """
    graph = lowering.lower(document)
    space = _Space(document)
    must = needed(graph)
    order = order_of(graph, must, reference)
    entry = {item[0]: item for item in space.tasks}
    ends = [place for place, name in enumerate(order) if name in must]
    stages = [(end, True) for end in ends] + [(len(order) - 1, False)] * bool(graph.outputs)
    if space.static + space.bytes(space.inputs) > budget:
        return None
    left = tuple(1 if entry[name][6] else most_runs for name in order)  # None: any number of runs
    start = (0, 0, space.inputs, left)
    times, queue, ticket = {start: 0}, [(0, 0, start)], itertools.count(1)
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > times[state]:
            continue
        stage, place, values, left = state
        if stage == len(stages):
            if values & space.outputs == space.outputs:
                return cost
            continue
        end, ends_with_run = stages[stage]
        moves = [
            (0, (stage, place, values & ~(1 << i), left))
            for i in range(len(space.names))
            if values >> i & 1 and not space.pinned >> i & 1
        ]
        if place > end:
            moves.append((0, (stage + 1, 0, values, left)))
        else:
            _, _, task, reads, writes, drops, _ = entry[order[place]]
            first = ends_with_run and place == end
            if not first:
                moves.append((0, (stage, place + 1, values, left)))
            if values & reads == reads and left[place] != 0:
                runs = None if left[place] is None else left[place] - 1
                then = (*left[:place], runs, *left[place + 1 :])
                moves += [
                    (task.time, (stage, place + 1, (values | writes) & ~drop, then))
                    for drop in drops
                    if space.static + space.bytes(values) + space.added(task, writes, drop) <= budget
                ]
        for time, after in moves:
            if after not in times or cost + time < times[after]:
                times[after] = cost + time
                heapq.heappush(queue, (cost + time, next(ticket), after))
    return None


def is_best(makespan, runs, expected, reference):
    """Return whether `makespan` is the minimum of the class, as computed by `best`.

    A smaller makespan is correct only if the schedule omits runs whose values are never read. Some task's first run
    then deviates from the reference order.
    """
    if makespan == expected or makespan is None or expected is None:
        return makespan == expected
    known = set(reference)
    return makespan < expected and [name for name in dict.fromkeys(runs) if name in known] != reference
