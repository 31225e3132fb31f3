"""`dag-list-memory`: list scheduling of any task graph on P processors, within the memory and without deadlock.

It is a banker's algorithm with a sequential order as the safe continuation. The order runs each needed task once within
the budget. In a *safe* state, the unstarted tasks can run sequentially in that order within the budget, once all
running tasks have ended. The initial state is safe. A ready task may start if its bytes fit now and the state after its
end is also safe.

The first unstarted task of the order always leaves a safe state. When no task runs, it is ready, and its bytes fit
because the state is safe. The schedule therefore always progresses. If the ready task of highest priority may not
start, it blocks all others except that first one. Filling processors with tasks of lower priority wastes memory: on
assembly trees, it costs up to twice the makespan.

For each unstarted task, `Profile` holds the bytes in memory while the task runs in the sequential remainder. A task at
place k of the order that starts early changes only the places before k. Its outputs are already in memory there. An
input whose last user it was is now freed after the previous user.
"""

from __future__ import annotations

import heapq
from typing import Literal

from pydantic import Field

from remat.plugin import (
    Context,
    LeastBudget,
    Number,
    OptionError,
    Options,
    Problem,
    Proposal,
    StepBuilder,
    Steps,
    reference_order,
)
from remat_algorithms.dag.order.dag_order_greedy import greedy_order
from remat_algorithms.dag.order.model import order_model
from remat_algorithms.parallel.trees.memory_profile import Profile
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.timed_steps import processors_of, room
from remat_algorithms.parallel.trees.value_lifetimes import CopyModel, copy_model


class ListOptions(Options):
    """Options of `dag-list-memory`."""

    order: Literal["best", "reference"] = Field(
        default="best",
        description="sequential order that guarantees progress: the listed one (reference), or the best of it, greedy "
        "orders and, for trees, Liu's traversals",
    )
    priority: Literal["best", "critical-path", "order"] = Field(
        default="best",
        description="which ready task starts first: the one with the longest remaining path (critical-path), or the "
        "first in the sequential order (order), which is better if memory is scarce; best: try both",
    )


def solve(problem: Problem, options: ListOptions, context: Context) -> Proposal:
    """Run every needed task once, on all processors that share the working memory.

    Tasks with `parallel` share the idle processors equally when they start. O((n + accesses) (log n + n / BLOCK)) in
    the worst case, with small constants: see `Profile`.

    Takes instances of any kind. Values are not recomputed and stay in the first processor's memory. The schedule stays
    within the budget if the budget is at least the peak of the sequential order. Otherwise the algorithm returns no
    schedule and reports that peak as a sufficient budget.
    """
    model = _best_model(problem, options.order)
    peak, usage = model.peak, model.usage
    if problem.budget is not None and peak > problem.budget:
        task = model.tasks[usage.index(peak)] if peak in usage else None
        least = LeastBudget(peak, task, True, problem.machine.processors[0].memory)
        note = "no known sequential order of the needed tasks, each once, fits the budget"
        return Proposal(least=least, notes=(note,))
    found: list[_Scheduler] = []
    if options.priority != "order":
        found.append(_Scheduler(problem, model, _critical_path(problem, model)))
    if options.priority == "order" or (options.priority == "best" and found[0].profile is not None):
        found.append(_Scheduler(problem, model, list(range(len(model)))))
    for scheduler in found:
        scheduler.schedule()
    return Proposal(steps=min(found, key=lambda scheduler: scheduler.now).steps())


def _best_model(problem: Problem, wanted: str) -> CopyModel:
    """Return the model of a sequential order that fits the budget, else of the one with the minimum peak."""
    graph, machine = problem.graph, problem.machine
    if wanted == "best" and problem.kind == "tree":
        tree = ParallelTree.of(problem)
        order, budget = tree.best_postorder(), room(problem)
        if budget is not None and order.peak > budget:
            order = tree.optimal_traversal()
        return copy_model(graph, machine, order.order if tree.inward else order.order[::-1])
    model = copy_model(graph, machine, reference_order(graph, problem.needed.once).tolist())
    if wanted == "reference":
        return model
    try:
        ordered = order_model(problem, "dag-list-memory")
    except OptionError:  # several origins: only the listed order determines which one is read
        return model
    other = copy_model(graph, machine, [ordered.tasks[index] for index in greedy_order(ordered)])
    return min(model, other, key=lambda model: model.peak)


def _critical_path(problem: Problem, model: CopyModel) -> list[int]:
    """Return the runs by non-increasing length of the longest path that starts with them."""
    time = problem.graph.time.tolist()
    length: list[Number] = [time[task] for task in model.tasks]
    follow: list[Number] = [0] * len(model)
    for run in range(len(model) - 1, -1, -1):
        length[run] += follow[run]
        for other in model.before[run]:
            if length[run] > follow[other]:
                follow[other] = length[run]
    return sorted(range(len(model)), key=lambda run: (-length[run], run))


class _Scheduler:
    """State of the list scheduler at one instant."""

    def __init__(self, problem: Problem, model: CopyModel, ranking: list[int]) -> None:
        graph = problem.graph
        self.model = model
        self.now: Number = 0
        self.time: list[Number] = [graph.time[task].item() for task in model.tasks]
        self.most = None if graph.parallel_max is None else graph.parallel_max[model.tasks].tolist()
        self.alpha: list[float] | None = (
            None if graph.parallel_alpha is None else graph.parallel_alpha[model.tasks].tolist()
        )
        self.ranking = ranking
        self.rank = [0] * len(model)
        for place, run in enumerate(ranking):
            self.rank[run] = place
        self.usable = processors_of(problem)
        self.memory = problem.machine.processors[0].memory
        self.free = list(range(len(self.usable)))
        self.left = [len(users) for users in model.users]  # number of users that have not ended
        self.open = [len(users) - 1 for users in model.users]  # index of the last user that has not started
        self.started = [False] * len(model)
        self.listed: list[int] = [0] * len(model)  # line of each run
        self.front = 0  # first run that has not started
        self.used = model.resident
        self.taken = [0] * len(model)
        self.missing = [len(before) for before in model.before]
        self.after: list[list[int]] = [[] for _ in range(len(model))]
        for run, before in enumerate(model.before):
            for other in before:
                self.after[other].append(run)
        everything = model.at_start + sum(model.size) + sum(model.workspace)
        self.budget = problem.budget
        if self.budget is not None and everything <= self.budget:
            self.budget = None  # everything fits at the same time
        self.profile = None if self.budget is None else Profile(model.usage, 2 * everything)
        # Lines of the schedule: a run and the values that it drops, or -1 and the values of a separate drop.
        self.lines: list[tuple[int, list[int]]] = [(-1, model.unused)] if model.unused else []
        self.on: list[list[int]] = [[] for _ in range(len(model))]

    def schedule(self) -> None:
        """Run all tasks."""
        ready = [self.rank[run] for run, count in enumerate(self.missing) if count == 0]
        heapq.heapify(ready)
        running: list[tuple[Number, int]] = []
        while True:
            starting = self._starting(ready)
            for place, run in enumerate(starting):
                share = len(self.free) // (len(starting) - place)
                heapq.heappush(running, (self.now + self._run_on(run, share), run))
            if not running:
                break
            self.now = running[0][0]
            while running and running[0][0] == self.now:
                for follower in self._finish(heapq.heappop(running)[1]):
                    heapq.heappush(ready, self.rank[follower])
        if self.front < len(self.model):
            raise AssertionError("dag-list-memory got stuck, although its sequential order fits the budget")

    def _starting(self, ready: list[int]) -> list[int]:
        """Choose the runs that start now, at most one per free processor, and allocate their memory."""
        chosen: list[int] = []
        while ready and len(chosen) < len(self.free):
            run = self.ranking[ready[0]]
            if not self.started[run]:
                if not self._may_start(run):
                    break
                self._start(run)
                chosen.append(run)
            heapq.heappop(ready)
        run = self.front
        while len(chosen) < len(self.free) and run < len(self.model) and not self.missing[run] and self._may_start(run):
            self._start(run)
            chosen.append(run)
            run = self.front
        return chosen

    def _run_on(self, run: int, most: int) -> Number:
        """Give a run at most `most` free processors, limited to what it can use; return its duration."""
        width = 1 if self.most is None else min(most, self.most[run])
        self.on[run] = [heapq.heappop(self.free) for _ in range(width)]
        if width == 1 or self.alpha is None:
            return self.time[run]
        return self.time[run] / float(width ** self.alpha[run])

    def _may_start(self, run: int) -> bool:
        """Whether the bytes of a ready run fit now, and the state after its end is safe."""
        if self.budget is None or self.profile is None:
            return True
        if self.used + self.model.added(run, self._dropped(run)) > self.budget:
            return False
        if run == self.front:
            return True
        earlier = self._change_before(run)
        return earlier <= 0 or not self.profile.exceeds(run, self.budget - earlier)

    def _dropped(self, run: int) -> int:
        """Bytes of inputs that a run certainly drops, because no other user remains."""
        model = self.model
        if not model.in_place[run]:
            return 0
        return sum(
            [model.size[copy] for copy in model.uses[run] if self.left[copy] == 1 and model.droppable(run, copy)]
        )

    def _change_before(self, run: int) -> int:
        """Bytes by which the memory of all earlier unstarted runs changes once this run has ended."""
        model = self.model
        change = model.written[run]
        for copy in model.uses[run]:
            users = model.users[copy]
            place = self.open[copy]
            if users[place] == run:
                while place > 0 and self.started[users[place - 1]]:
                    place -= 1
                if place == 0:  # no other user remains
                    change -= model.size[copy]
        return change

    def _start(self, run: int) -> None:
        """Allocate the memory of a starting run, and update the memory of the sequential remainder."""
        model = self.model
        self.taken[run] = model.added(run, self._dropped(run))
        self.used += self.taken[run]
        self.listed[run] = len(self.lines)
        self.lines.append((run, []))
        if self.profile is not None:
            self.profile.remove(run)
            if run > self.front:
                self.profile.add(self.front, run, self._change_before(run))
        self.started[run] = True
        for copy in model.uses[run]:
            users = model.users[copy]
            place = self.open[copy]
            while place >= 0 and self.started[users[place]]:
                place -= 1
            # The copy was held until `run`. Now the last other unstarted user frees it.
            if self.profile is not None and users[self.open[copy]] == run and place >= 0:
                self.profile.add(users[place] + 1, run, -model.size[copy])
            self.open[copy] = place
        while self.front < len(model) and self.started[self.front]:
            self.front += 1

    def _finish(self, run: int) -> list[int]:
        """End a run: free the values without remaining users; return the runs that become ready."""
        model = self.model
        for processor in self.on[run]:
            heapq.heappush(self.free, processor)
        self.used += model.written[run] - self.taken[run]
        loose = []
        for copy in model.uses[run]:
            self.left[copy] -= 1
            if self.left[copy]:
                continue
            self.used -= model.size[copy]
            if model.replaced[copy]:
                continue
            # A run drops a value only if it is the last listed user: placement may shift runs.
            if all(self.listed[user] <= self.listed[run] for user in model.users[copy]):
                self.lines[self.listed[run]][1].append(model.value[copy])
            else:
                loose.append(model.value[copy])
        if loose:
            self.lines.append((-1, loose))
        ready = []
        for follower in self.after[run]:
            self.missing[follower] -= 1
            if self.missing[follower] == 0:
                ready.append(follower)
        return ready

    def steps(self) -> Steps:
        """Return the lines as steps without start times."""
        builder = StepBuilder()
        several = len(self.usable) > 1
        for run, dropped in self.lines:
            if run < 0:
                builder.drop(dropped, self.memory)
            else:
                on = [self.usable[processor] for processor in self.on[run]] if several else ()
                builder.run(self.model.tasks[run], drop=dropped, on=on)
        return builder.build()
