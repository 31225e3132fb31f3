"""The shortest schedule of a tiny in-tree on P processors and one memory, over all orders of starts.

List the tasks of any schedule by start. Starting each task of the list at its earliest time, not before the previous
task, never starts a task later than the schedule does. The best list therefore gives the shortest schedule.
"""

import math
from itertools import permutations


def shortest(parent, size, workspace, time, processors, capacity):
    """Return the minimum makespan; infinite if the capacity is too small."""
    count = len(parent)
    children = [[child for child in range(count) if parent[child] == node] for node in range(count)]
    best = math.inf
    for order in permutations(range(count)):
        place = {node: index for index, node in enumerate(order)}
        if all(above < 0 or place[node] < place[above] for node, above in enumerate(parent)):
            best = min(best, _makespan(order, parent, children, size, workspace, time, processors, capacity))
    return best


def _makespan(order, parent, children, size, workspace, time, processors, capacity):
    start, end = {}, {}
    now = 0
    for node in order:
        instants = sorted({now, *(instant for instant in end.values() if instant > now)})
        for instant in instants:
            running = [other for other in start if end[other] > instant]
            held = sum(size[other] for other in start if not _gone(parent[other], end, instant))
            held += sum(workspace[other] for other in running)
            ready = all(child in end and end[child] <= instant for child in children[node])
            if ready and len(running) < processors and held + size[node] + workspace[node] <= capacity:
                break
        else:
            return math.inf
        now = start[node] = instant
        end[node] = instant + time[node]
    return max(end.values())


def _gone(reader, end, instant):
    return reader in end and end[reader] <= instant
