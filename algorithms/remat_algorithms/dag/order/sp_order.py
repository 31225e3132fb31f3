"""`sp-order`: the order of minimum peak of a series-parallel task graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remat.plugin import Context, OptionError, Problem, Proposal
from remat_algorithms.dag.order.dag_order_greedy import proved_bound
from remat_algorithms.dag.order.model import OrderModel, order_model
from remat_algorithms.dag.order.order_proposal import propose
from remat_algorithms.dag.order.segment_strings import Strings, highest
from remat_algorithms.dag.order.series_parallel import NotSeriesParallelError, evaluate, reduced

MOST_TASKS = 20_000
"""Maximum number of tasks of a graph that needs ancestors: with values of several readers, or with redundant edges."""


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Order a series-parallel task graph.

    Kayaaslan, Lambert, Marchal and Ucar 2018 generalize Liu's algorithm for trees to series-parallel graphs with data
    on the edges. Every task then has a fixed hill h (bytes added while it runs) and net n (bytes left behind). This
    algorithm computes the same optimum by the older theory of cumulative cost under series-parallel precedence
    (Abdel-Wahab and Kameda 1978; Monma and Sidney 1979), which needs no terminals. It merges strings of segments in
    parallel and concatenates them in series (`remat_algorithms.dag.order.segment_strings`).

    The last reader of a value frees it. If one reader must be last, its net is fixed, too. Otherwise the release
    becomes a separate task after all readers. If the precedence is then no longer series-parallel, each possible last
    reader frees an equal share of the value. No order uses less memory than this relaxation, so it gives a proved
    bound. If the bound equals the peak, the order is optimal; this always holds if every last reader is known.
    Otherwise a note gives both.

    Accepts instances of any kind. Claims makespan and peak; infeasible within `NO_RECOMPUTATION` if the bound is above
    the budget; unknown if only the order's peak is, or if it was stopped.

    Raises
    ------
    OptionError
        If the precedence of the needed tasks is not series-parallel, or a value has several origins.
    """
    model = order_model(problem, "sp-order")
    found = series_parallel_order(problem, model, lambda: context.stopped)
    if found is None:
        return Proposal(termination=context.termination)
    order, relaxed = found
    bound, setting = proved_bound(model)
    peak = model.peak(order)
    if relaxed >= bound:
        bound, setting = relaxed, model.setting_task(order) if relaxed == peak else None
    notes: tuple[str, ...] = ()
    if bound < peak:
        notes = (f"the smallest peak without recomputation is at least {bound}; this order's is {peak}",)
    return propose(problem, model, order, bound=bound, setting=setting, notes=notes)


def series_parallel_order(
    problem: Problem, model: OrderModel, stopped: Callable[[], bool]
) -> tuple[list[int], int] | None:
    """Return the order, and a lower bound on the peak of every order; None if it was stopped."""
    if not len(model):
        return [], model.start_peak
    shared = _shared_values(problem, model)
    in_doubt = any(len(last) > 1 for last in shared.values())
    failed = 0
    for with_releases in (True, False) if in_doubt else (False,):
        figures = _with_releases(model, shared, stopped) if with_releases else _with_shares(model, shared)
        if figures is None or stopped():
            return None
        strings = Strings(figures.hill, figures.net)
        try:
            string = evaluate(reduced(figures.predecessors), strings.single, strings.series, strings.parallel)
        except NotSeriesParallelError as error:
            failed = figures.task[error.task]
            continue
        order = [figures.task[node] for node in strings.order(string) if figures.task[node] >= 0]
        return order, max(model.start_peak, model.start + highest(string))
    # The last attempt has no releases, so the failing node is a task.
    name = problem.graph.described(model.tasks[failed], repr)
    raise OptionError(
        f"'sp-order' needs series-parallel precedence, which fails at task {name}; use dag-order-exact",
        argument="algorithm",
    )


@dataclass(frozen=True, slots=True)
class _Figures:
    """Precedence, hill and net of tasks and releases, numbered topologically; a release has task -1."""

    task: list[int]
    predecessors: Sequence[Sequence[int]]
    hill: list[int]
    net: list[int]


def _shared_values(problem: Problem, model: OrderModel) -> dict[int, list[int]]:
    """Return the possible last readers of each value that has more than one reader."""
    several = [value for value, readers in enumerate(model.readers) if len(readers) > 1]
    joins = any(len(before) > 1 for before in model.predecessors)
    forks = any(len(after) > 1 for after in model.successors)
    if len(model) > MOST_TASKS and (several or (joins and forks)):
        raise OptionError(
            f"'sp-order' takes graphs of more than {MOST_TASKS} tasks only if they are trees; this one "
            f"has {len(model)}; use dag-order-greedy",
            argument="algorithm",
        )
    found = {}
    for value in several:
        readers = model.readers[value]
        before = 0
        for reader in readers:
            before |= model.ancestors[reader]
        found[value] = [reader for reader in readers if not before >> reader & 1]
    return found


def _figures(model: OrderModel, shared: dict[int, list[int]]) -> tuple[list[int], list[int]]:
    """Return hill and net of each task; a release with several possible last readers does not count in net."""
    hill, net = [], []
    for task in range(len(model)):
        freed = perhaps = 0
        for value in model.reads[task]:
            last = shared.get(value, [task])
            if last == [task]:
                freed += model.size[value]
            elif task in last:
                perhaps += model.size[value]
        added = model.written[task]
        if model.in_place[task]:
            added = max(0, added - freed - perhaps)
        hill.append(added + model.workspace[task])
        net.append(model.written[task] - model.unread[task] - freed)
    return hill, net


def _with_releases(model: OrderModel, shared: dict[int, list[int]], stopped: Callable[[], bool]) -> _Figures | None:
    """Turn each release with several possible last readers into a separate task.

    It runs right after the last of the readers, so tasks that need all of them can wait for it. If a reader works in
    place, this release would come too late, and the readers keep their shares. None if it was stopped.
    """
    hill, net = _figures(model, shared)
    in_place = {value for value, last in shared.items() if any(model.in_place[task] for task in last)}
    _share(model, net, {value: shared[value] for value in in_place})
    behind: list[list[int]] = [[] for _ in range(len(model))]  # values whose last possible reader the task is
    releases: list[list[int]] = [[] for _ in range(len(model))]  # values whose release the task waits for
    for value, last in shared.items():
        if stopped():
            return None
        if len(last) > 1 and value not in in_place:
            behind[max(last)].append(value)
            # The earliest tasks that need all readers: those that follow no other such task.
            behind_all = model.descendants[last[0]]
            for reader in last[1:]:
                behind_all &= model.descendants[reader]
            while behind_all:
                lowest = behind_all & -behind_all
                task = lowest.bit_length() - 1
                releases[task].append(value)
                behind_all &= ~(model.descendants[task] | lowest)
    predecessors: list[list[int]] = []
    figures = _Figures([], predecessors, [], [])
    number: list[int] = []
    number_of_release: dict[int, int] = {}
    for task in range(len(model)):
        number.append(len(figures.task))
        figures.task.append(task)
        figures.hill.append(hill[task])
        figures.net.append(net[task])
        before = [number[other] for other in model.predecessors[task]]
        predecessors.append(before + [number_of_release[value] for value in releases[task]])
        for value in behind[task]:
            number_of_release[value] = len(figures.task)
            figures.task.append(-1)
            figures.hill.append(0)
            figures.net.append(-model.size[value])
            predecessors.append([number[reader] for reader in shared[value]])
    return figures


def _with_shares(model: OrderModel, shared: dict[int, list[int]]) -> _Figures:
    """Let each possible last reader free an equal share of the value."""
    hill, net = _figures(model, shared)
    _share(model, net, shared)
    return _Figures(list(range(len(model))), model.predecessors, hill, net)


def _share(model: OrderModel, net: list[int], shared: dict[int, list[int]]) -> None:
    for value, last in shared.items():
        if len(last) > 1:
            share, rest = divmod(model.size[value], len(last))
            for index, task in enumerate(last):
                net[task] -= share + (index < rest)
