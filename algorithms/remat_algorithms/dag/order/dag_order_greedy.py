"""`dag-order-greedy`: the best of several greedy list schedules."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from remat.plugin import Context, Problem, Proposal
from remat_algorithms.dag.order.bound import residency_bounds
from remat_algorithms.dag.order.model import OrderModel, order_model
from remat_algorithms.dag.order.order_proposal import propose

Key = tuple[int, ...]
Rule = Callable[[int, int, int], Key]
"""Priority (minimum first) of a ready task: from its net bytes, the bytes that it adds during its run, and its age."""


def _like_liu(net: int, hill: int, age: int) -> Key:
    """Releasing tasks by ascending hill, then the others by descending hill - net: Liu's order of segments."""
    return (0, hill, net, age) if net <= 0 else (1, net - hill, net, age)


def _least_net(net: int, hill: int, age: int) -> Key:
    return (net, hill, age)


def _least_hill(net: int, hill: int, age: int) -> Key:
    return (hill, net, age)


def _depth_first(net: int, hill: int, age: int) -> Key:
    """Tasks that release memory at once, else the tasks that became ready last."""
    return (0, hill, 0) if net <= 0 else (1, -age, net)


RULES: tuple[Rule, ...] = (_like_liu, _least_net, _depth_first, _least_hill)


def solve(problem: Problem, options: None, context: Context) -> Proposal:
    """Return the best of four greedy list schedules and the reference order.

    Each list schedule repeatedly takes the ready task of highest priority. The rules are: Liu's rule for segments
    applied to single tasks (those that release memory by ascending hill, the others by descending hill - net), minimum
    net bytes, minimum bytes added while it runs, and depth first. O((tasks + reads) log tasks).

    Accepts instances of any kind. Claims makespan and peak; unknown if the best order does not fit and no bound proves
    that no order does.

    Raises
    ------
    OptionError
        If a value has several origins.
    """
    model = order_model(problem, "dag-order-greedy")
    order = greedy_order(model)
    bound, setting = proved_bound(model)
    return propose(problem, model, order, bound=bound, setting=setting)


def proved_bound(model: OrderModel) -> tuple[int, int | None]:
    """Return a lower bound on the peak of every order, and the graph's task that sets it."""
    bounds = residency_bounds(model)
    if len(bounds) == 0 or int(bounds.max()) < model.start_peak:
        return model.start_peak, None
    return int(bounds.max()), model.tasks[int(bounds.argmax())]


def greedy_order(model: OrderModel) -> list[int]:
    """Return the order of minimum peak among those of `RULES` and the reference order."""
    orders = [list(range(len(model))), *(_listed(model, rule) for rule in RULES)]
    return min(orders, key=model.peak)


def _listed(model: OrderModel, rule: Rule) -> list[int]:
    left = [len(readers) for readers in model.readers]
    waiting = [len(before) for before in model.predecessors]
    age = [0] * len(model)

    def key(task: int) -> Key:
        freed = sum(model.size[value] for value in model.reads[task] if left[value] == 1)
        added = model.written[task]
        if model.in_place[task]:
            added = max(0, added - freed)
        net = model.written[task] - model.unread[task] - freed
        return rule(net, added + model.workspace[task], age[task])

    heap = [(key(task), task) for task in range(len(model)) if not waiting[task]]
    heapq.heapify(heap)
    done = [False] * len(model)
    order: list[int] = []
    while heap:
        _, task = heapq.heappop(heap)
        if done[task]:
            continue
        done[task] = True
        order.append(task)
        for value in model.reads[task]:
            left[value] -= 1
            if left[value] == 1:
                # The last reader frees the value: if that task is ready, its priority changes.
                for reader in model.readers[value]:
                    if not done[reader] and not waiting[reader]:
                        heapq.heappush(heap, (key(reader), reader))
        for other in model.successors[task]:
            waiting[other] -= 1
            if not waiting[other]:
                age[other] = len(order)
                heapq.heappush(heap, (key(other), other))
    return order
