"""Exhaustive searches and plain recurrences for tiny instances, the reference for the exact algorithms.

All of them return None without a solution.
"""

import heapq
import itertools
import math
from functools import cache

from . import lowering

# --- every sequential schedule of a task graph in one memory ------------------------------------------------------


class _Space:
    """The states of a sequential execution in one memory, and the moves between them.

    A state is (set of resident values, set of finished tasks), both as bit masks. The state records only tasks that
    must run, and tasks that may run only once. A move drops one value, at no cost, or runs one task. Dropping at the
    end of a run equals dropping between runs, except for in-place tasks, whose dropped inputs become outputs: the
    search tries every set of inputs to drop. Tasks named in `order` run, and for the first time in that order.
    """

    def __init__(self, document, order=()):
        graph = lowering.lower(document)
        self.first = lowering.machine(document).first
        if any(memory != self.first for _, memory in graph.inputs + graph.outputs):
            raise ValueError("these searches know one memory only")
        self.static = graph.static
        self.names = list(graph.values)
        self.sizes = list(graph.values.values())
        bit = {value: 1 << i for i, value in enumerate(graph.values)}

        def mask(values):
            return sum(bit[value] for value in set(values))

        self.bit = bit
        self.inputs = mask(value for value, _ in graph.inputs)
        self.outputs = mask(value for value, _ in graph.outputs)
        self.pinned = mask(graph.pinned) & self.inputs
        self.tasks = []
        self.must = 0
        for i, (name, task) in enumerate(graph.tasks.items()):
            reads, own = mask(task.reads), 1 << i
            self.must |= own if task.required or task.once else 0
            droppable = sorted(set(task.reads) - set(graph.pinned & {value for value, _ in graph.inputs}))
            count = len(droppable) if task.in_place else 0
            drops = [mask(some) for k in range(count + 1) for some in itertools.combinations(droppable, k)]
            only_once = task.once or not task.recomputable
            self.tasks.append((name, own, task, reads, mask(task.writes), drops, only_once))
        bits = {entry[0]: entry[1] for entry in self.tasks}
        self.after = {bits[name]: sum(bits[other] for other in order[:place]) for place, name in enumerate(order)}
        self.must |= sum(self.after)
        self.remembered = self.must | sum(entry[1] for entry in self.tasks if entry[6])
        self.bytes = cache(lambda values: sum(size for i, size in enumerate(self.sizes) if values >> i & 1))

    def start(self):
        """Return the initial state and its memory."""
        return (self.inputs, 0), self.static + self.bytes(self.inputs)

    def finished(self, state):
        """Say whether every task that must run has run, and the outputs are there."""
        values, done = state
        return done & self.must == self.must and values & self.outputs == self.outputs

    def moves(self, state):
        """Yield (step, time, memory during the step, next state)."""
        values, done = state
        useful_values, useful_tasks = self.useful(done)
        # What can serve nobody any more only costs memory: getting rid of it at once loses no schedule.
        dead = values & ~useful_values & ~self.pinned
        for i, name in enumerate(self.names):
            if (dead or values & ~self.pinned) >> i & 1:
                yield {"drop": [name], "memory": self.first}, 0, 0, (values & ~(1 << i), done)
                if dead:
                    return
        for name, own, task, reads, writes, drops, _ in self.tasks:
            if values & reads != reads or not useful_tasks & own or self.after.get(own, 0) & ~done:
                continue
            then_done = done | (own & self.remembered)
            for drop in drops:
                memory = self.static + self.bytes(values) + self.added(task, writes, drop)
                step = {"run": name, "drop": [value for value in self.names if self.bit[value] & drop]}
                yield step, task.time, memory, ((values | writes) & ~drop, then_done)

    @cache  # noqa: B019  (a space lives as long as one search)
    def useful(self, done):
        """Return the values and the tasks that the work still to do may make use of, as bit masks."""
        values, tasks = self.outputs, 0
        while True:
            before = values, tasks
            for _, own, _, reads, writes, _, only_once in self.tasks:
                again = writes & values and not (only_once and done & own)
                if own & self.must & ~done or again:
                    tasks |= own
                    values |= reads
            if (values, tasks) == before:
                return before

    def added(self, task, writes, drop):
        """Bytes that a run adds while it lasts."""
        written = self.bytes(writes)
        if task.in_place:
            written = max(0, written - self.bytes(drop))
        return written + task.workspace

    @cache  # noqa: B019
    def time_to_go(self, done):
        """Time that the tasks not yet run must still take: a bound that never overestimates."""
        return sum(entry[2].time for entry in self.tasks if entry[1] & self.must & ~done)

    @cache  # noqa: B019
    def memory_to_go(self, done):
        """Memory that some task not yet run must still take."""
        alone = [
            self.static + self.bytes(reads) + min(self.added(task, writes, drop) for drop in drops)
            for _, own, task, reads, writes, drops, _ in self.tasks
            if own & self.must & ~done
        ]
        return max(alone, default=0)


def _shortest(document, *, budget, order=()):
    """Dijkstra over the states: by time within a budget, or (budget None) by peak memory.

    Returns
    -------
    tuple or None
        The least makespan, or the least peak, and the steps.
    """
    space = _Space(document, order)
    start, memory = space.start()
    by_time = budget is not None
    if by_time and memory > budget:
        return None
    best = {start: 0 if by_time else memory}
    came = {start: None}
    # Ordered by the bound on the whole, which keeps the first answer exact (A* with a consistent bound).
    queue = [(0, 0, start)]
    settled = set()
    ticket = itertools.count(1)
    while queue:
        _, _, state = heapq.heappop(queue)
        if state in settled:
            continue
        settled.add(state)
        if space.finished(state):
            return best[state], _trace(came, state)
        for step, time, memory, after in space.moves(state):
            if by_time and memory > budget:
                continue
            cost = best[state] + time if by_time else max(best[state], memory)
            if after not in best or cost < best[after]:
                best[after] = cost
                came[after] = (state, step)
                done = after[1]
                whole = cost + space.time_to_go(done) if by_time else max(cost, space.memory_to_go(done))
                heapq.heappush(queue, (whole, -next(ticket), after))
    return None


def _trace(came, state):
    steps = []
    while came[state] is not None:
        state, step = came[state]
        steps.append(step)
    return steps[::-1]


def chain_best(document, budget, order=None):
    """Return the minimum makespan of all sequential schedules within `budget`, in one memory.

    Accepts every kind that lowers to a graph in one memory; meant for chains of up to six stages. `order`: names of
    tasks that run, and for the first time in that order; others may run again, or for the first time, at any time.
    """
    found = _shortest(document, budget=budget, order=order or ())
    return None if found is None else found[0]


def chain_best_steps(document, budget):
    """Return the steps (without start times) of a schedule that `chain_best` speaks of."""
    found = _shortest(document, budget=budget)
    return None if found is None else found[1]


def chain_least_budget(document):
    """Return the minimum budget of all sequential schedules."""
    found = _shortest(document, budget=None)
    return None if found is None else found[0]


# --- memory-persistent schedules of a chain -----------------------------------------------------------------------


def persistent_best(document, budget):
    """Return the minimum makespan of the memory-persistent schedules of a chain, by the recurrence of rotor.

    It follows Beaumont et al. 2019, with exact bytes and the gradient that is really alive. `best(m, i, l)` is the time
    from x_i and y_{l+1} (both resident) to y_i with m bytes, which include y_{l+1} but not x_i. Stage L is the loss,
    and y_{L+1} is empty.

    Only for chains in which every backward reads input, output and saved values, and nothing runs in place.
    """
    graph = lowering.lower(document)
    stages = sum(name.startswith("Fe") for name in graph.tasks)
    tasks, size = graph.tasks, graph.values
    for i in range(1, stages + 1):
        if set(tasks[f"B{i}"].reads) != {f"y{i}", f"x{i - 1}", f"x{i}", f"s{i}"} or tasks[f"B{i}"].in_place:
            raise ValueError("the recurrence is stated for default chains only")

    def gradient_at_end(last):
        return 0 if last == stages else size[f"y{last + 1}"]

    @cache
    def best(memory, i, last):
        if i == stages:
            return tasks["loss"].time if size[f"y{i}"] + tasks["loss"].workspace <= memory else math.inf
        return min(save_all(memory, i, last), checkpoint(memory, i, last))

    def save_all(memory, i, last):
        """Run the saving forward of stage i, the rest of the segment, the backward of stage i."""
        forward, backward = tasks[f"Fe{i + 1}"], tasks[f"B{i + 1}"]
        kept = size[f"x{i + 1}"] + size[f"s{i + 1}"]
        if kept + forward.workspace + gradient_at_end(last) > memory:
            return math.inf
        if kept + size[f"y{i + 1}"] + size[f"y{i}"] + backward.workspace > memory:
            return math.inf
        inside = 0 if i == last else best(memory - kept, i + 1, last)
        return forward.time + inside + backward.time

    def checkpoint(memory, i, last):
        """Sweep from x_i to x_j keeping only both, do [j, last], come back for [i, j - 1]."""
        least, sweep = math.inf, 0
        for k in range(i, last):
            forward = tasks[f"F{k + 1}"]
            before = size[f"x{k}"] if k > i else 0
            if before + size[f"x{k + 1}"] + forward.workspace + gradient_at_end(last) > memory:
                break
            sweep += forward.time
            j = k + 1
            least = min(least, sweep + best(memory - size[f"x{j}"], j, last) + best(memory, i, j - 1))
        return least

    found = best(budget - size["x0"] - graph.static, 0, stages)
    return None if found == math.inf else found


# --- adjoints with checkpoint levels ------------------------------------------------------------------------------


def adjoint_best_cost(forward_times, backward_times, levels, initial_level=None):
    """Return the least cost of a time-stepping adjoint with checkpoint levels, over all schedules.

    One working buffer holds one state; storing copies it to a level, loading copies from a level over it;
    discarding is free.  The last step has a backward only.

    Parameters
    ----------
    forward_times : sequence
        n - 1 times, of the steps 0 .. n - 2.
    backward_times : sequence
        n times, of the steps 0 .. n - 1.
    levels : sequence of (slots, write_time, read_time)
    initial_level : int, optional
        A level in which x_0 also lies from the start (in one of its slots).

    Returns
    -------
    number or None
    """
    n = len(backward_times)
    stored = [frozenset() for _ in levels]
    if initial_level is not None:
        stored[initial_level] = frozenset([0])
    start = (tuple(stored), 0, n - 1)  # stored states per level, working state, next backward step
    best, queue, ticket = {start: 0}, [(0, 0, start)], itertools.count(1)
    while queue:
        cost, _, state = heapq.heappop(queue)
        stored, working, back = state
        if back < 0:
            return cost
        if cost > best[state]:
            continue
        moves = []
        if working < n - 1:
            moves.append((forward_times[working], (stored, working + 1, back)))
        if working == back:
            moves.append((backward_times[back], (stored, working, back - 1)))
        for k, (slots, write, read) in enumerate(levels):
            if len(stored[k]) < slots and working not in stored[k]:
                moves.append((write, (_replaced(stored, k, stored[k] | {working}), working, back)))
            for state_index in stored[k]:
                moves.append((read, (stored, state_index, back)))
                moves.append((0, (_replaced(stored, k, stored[k] - {state_index}), working, back)))
        for time, after in moves:
            if after not in best or cost + time < best[after]:
                best[after] = cost + time
                heapq.heappush(queue, (cost + time, next(ticket), after))
    return None


def _replaced(levels, k, content):
    return (*levels[:k], content, *levels[k + 1 :])


def adjoint_best_advances(n, slots):
    """Return the minimum number of advances for n steps with `slots` slots and one working buffer (n <= 8)."""
    return adjoint_best_cost([1] * (n - 1), [0] * n, [(slots, 0, 0)])


# --- trees and orders ---------------------------------------------------------------------------------------------


def _children(parent):
    return [[child for child, above in enumerate(parent) if above == node] for node in range(len(parent))]


def tree_best_postorder(parent, f, m):
    """Return the minimum peak of a post-order of an in-tree, over every order of the children of every node.

    Parameters
    ----------
    parent, f, m : sequence of int
        Parents (root: -1), output sizes, workspaces.
    """
    children = _children(parent)

    @cache
    def peak(node):
        # A subtree's peak counts on top of its finished siblings, so the best one of each is best for all.
        def ordered(order):
            stack, highest = 0, 0
            for child in order:
                highest = max(highest, stack + peak(child))
                stack += f[child]
            return max(highest, stack + m[node] + f[node])

        return min(ordered(order) for order in itertools.permutations(children[node]))

    return peak(parent.index(-1))


def tree_best_traversal(parent, f, m):
    """Return the smallest peak of any topological order of an in-tree (n <= 9 or so)."""
    n, children = len(parent), _children(parent)

    @cache
    def peak(done):
        """Smallest peak of the remaining tasks after those in `done`."""
        if len(done) == n:
            return 0
        resident = sum(f[i] for i in done if parent[i] not in done)
        ready = [i for i in range(n) if i not in done and all(child in done for child in children[i])]
        return min(max(resident + m[i] + f[i], peak(done | {i})) for i in ready)

    return peak(frozenset())


def dag_best_order_peak(document):
    """Return the minimum peak over all orders of a task graph in which every task runs exactly once.

    A value is dropped as soon as no remaining task reads it, unless it is pinned or an output.
    """
    graph = lowering.lower(document)
    names = list(graph.tasks)
    writers = [value for task in graph.tasks.values() for value in task.writes]
    inputs = {value for value, _ in graph.inputs}
    if len(set(writers)) < len(writers) or inputs & set(writers):
        raise ValueError("every value needs exactly one origin")
    for_ever = {value for value, _ in graph.outputs} | (graph.pinned & inputs)

    def resident(done):
        """Values there once the tasks in `done` have run and everything useless is gone."""
        there = inputs | {value for name in done for value in graph.tasks[name].writes}
        wanted = {value for name in names if name not in done for value in graph.tasks[name].reads}
        return there & (wanted | for_ever)

    def size(values):
        return sum(graph.values[value] for value in values)

    start = frozenset()
    best = {start: graph.static + size(inputs)}
    queue = [(best[start], 0, start)]
    ticket = itertools.count(1)
    while queue:
        highest, _, done = heapq.heappop(queue)
        if len(done) == len(names):
            return highest
        if highest > best[done]:
            continue
        there = resident(done)
        for name in names:
            task = graph.tasks[name]
            if name in done or not set(task.reads) <= there:
                continue
            after = done | {name}
            written = size(task.writes)
            if task.in_place:
                written = max(0, written - size(set(task.reads) - resident(after)))
            peak = max(highest, graph.static + size(there) + written + task.workspace)
            if after not in best or peak < best[after]:
                best[after] = peak
                heapq.heappush(queue, (peak, -next(ticket), after))
    return None
