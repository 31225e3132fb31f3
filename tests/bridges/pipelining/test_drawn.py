"""Test drawn orders: a CSV round trip, and deadlocks against an independent detection."""

from __future__ import annotations

import random
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from remat.bridges.pipelining.actions import Action, Cell, Kind
from remat.bridges.pipelining.layout import Layout, check_layout
from remat.bridges.pipelining.orders import orders_of, rows_of
from remat.bridges.pipelining.rendezvous import Blocked, hang_of, rendezvous_deadlock, with_transfers
from remat.schedule.orders import Orders, Pass, Phase, Stage
from remat.solving.verifying import examine
from tests.bridges.pipelining.cases import instance_of, pipeline
from tests.seeds import seeds

BACKWARDS = (Kind.INPUT, Kind.BACKWARD)

Named = tuple[str, int, int]
"""A transfer: of an output or a gradient, between a stage and the one before, for a micro-batch."""


def drawn(random_: random.Random) -> Orders:
    """Return orders that run where transfers do not block: operations in some order in which their data are there."""
    stages, devices, batches = random_.randint(1, 6), random_.randint(1, 4), random_.randint(1, 4)
    home = [random_.randrange(devices) for _ in range(stages)]
    halves = random_.random() < 0.5
    ahead = random_.choice([0.2, 1, 5])  # how eagerly forwards go first
    left: dict[Pass, set[Pass]] = {}
    for stage in range(stages):
        for batch in range(batches):
            left[Pass(Phase.F, stage, batch)] = {Pass(Phase.F, stage - 1, batch)} if stage else set()
            after = Pass(Phase.B, stage + 1, batch) if stage + 1 < stages else Pass(Phase.F, stage, batch)
            left[Pass(Phase.B, stage, batch)] = {after}
            if halves:
                left[Pass(Phase.W, stage, batch)] = {Pass(Phase.B, stage, batch)}
    lists: list[list[Pass]] = [[] for _ in range(devices)]
    done: set[Pass] = set()
    while len(done) < len(left):
        ready = [one for one, needs in left.items() if one not in done and needs <= done]
        (one,) = random_.choices(ready, [ahead if one.phase is Phase.F else 1 for one in ready])
        done.add(one)
        lists[home[one.stage]].append(one)
    return Orders(tuple(Stage((k,), device) for k, device in enumerate(home)), tuple(map(tuple, lists)))


def hangs_in_a_cluster(orders: Orders, transfers: str) -> bool:
    """Whether the referee sees a deadlock where the cluster has such transfers."""
    batches = 1 + max(one.batch for listed in orders.lists for one in listed)
    halves = any(one.phase is Phase.W for listed in orders.lists for one in listed)
    layer = {"forward_time": 1, "backward_time": 1, "weight_time": int(halves), "repeat": len(orders.stages)}
    cluster = {"devices": [{"name": "gpu", "count": len(orders.lists)}], "transfers": transfers}
    document = pipeline(micro_batches=batches, layers=[layer], cluster=cluster)
    plan = {"schema": "remat.schedule/2"} | orders.to_document(instance_of(document).cluster.names)
    rules = {violation.rule for violation in examine(document, plan).report.violations}
    assert rules <= {"deadlock"}
    return bool(rules)


def hangs(orders: Orders, *, grouped: bool) -> bool:
    """Whether transfers have no order: each comes after those of the group before, on both of its ends."""
    graph: TopologicalSorter[Named] = TopologicalSorter()
    for listed in orders.lists:
        before: list[Named] = []
        for group in groups(orders, listed, grouped=grouped):
            for transfer in group:
                graph.add(transfer, *before)
            before = group
    try:
        graph.prepare()
    except CycleError:
        return True
    return False


def groups(orders: Orders, listed: tuple[Pass, ...], *, grouped: bool) -> Iterator[list[Named]]:
    sent: list[Named] = []
    for operation in [*listed, None]:
        received, following = ends(orders, operation) if operation is not None else ([], [])
        posted = sent + received
        sent = following
        if grouped and posted:
            yield posted
        elif not grouped:
            yield from ([one] for one in posted)


def ends(orders: Orders, operation: Pass) -> tuple[list[Named], list[Named]]:
    """Return the values that an operation receives and sends."""
    phase, stage, batch = operation
    below: list[Named] = [("x" if phase is Phase.F else "y", stage, batch)] if stage and far(orders, stage) else []
    last = stage + 1 == len(orders.stages)
    above: list[Named] = (
        [("x" if phase is Phase.F else "y", stage + 1, batch)] if not last and far(orders, stage + 1) else []
    )
    if phase is Phase.W:
        return [], []
    return (below, above) if phase is Phase.F else (above, below)


def far(orders: Orders, stage: int) -> bool:
    return orders.stages[stage].device != orders.stages[stage - 1].device


def assert_true(cycle: tuple[Blocked, ...], layout: Layout) -> None:
    """The other end of each transfer is in a later group of the next rank than that in which this one waits."""
    for blocked, following in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        cells = layout.rows[following.rank]
        assert layout.home[blocked.transfer.stage] == blocked.rank
        here, there = cells.index(following.transfer), cells.index(layout.other_end(blocked.transfer))
        between = cells[here:there]
        assert any(cell is None or "_" not in str(cell) for cell in between), (blocked, following)


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_deadlocks_of_drawn_orders_equal_the_simulation(seed: int) -> None:
    random_ = random.Random(seed)
    seen = set()
    for _ in range(40):
        orders = drawn(random_)
        cycles = [rendezvous_deadlock(orders, grouped=how) for how in (False, True)]
        for cycle, how in zip(cycles, (False, True), strict=True):
            if cycle is not None:
                assert_true(cycle, with_transfers(check_layout(rows_of(orders)), grouped=how))
        single, grouped = (cycle is not None for cycle in cycles)
        assert (single, grouped) == (hangs(orders, grouped=False), hangs(orders, grouped=True))
        assert single or not grouped, "what runs one by one runs in groups"
        assert (single, grouped) == tuple(hangs_in_a_cluster(orders, mode) for mode in ("rendezvous", "grouped"))
        seen.add((single, grouped))
    assert {(False, False), (True, True)} <= seen


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_drawn_orders_survive_a_round_trip(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(10):
        orders = drawn(random_)
        batches = 1 + max(one.batch for listed in orders.lists for one in listed)
        halves = any(one.phase is Phase.W for listed in orders.lists for one in listed)
        layer = {"forward_time": 1, "backward_time": 1, "weight_time": int(halves), "repeat": len(orders.stages)}
        instance = instance_of(pipeline(micro_batches=batches, layers=[layer]))
        layout = check_layout(rows_of(orders))
        devices = len(orders.lists)
        assert orders_of(layout, instance, devices) == orders
        full = with_transfers(layout, grouped=random_.random() < 0.5)
        again = check_layout(full.rows)
        assert orders_of(again, instance, devices) == orders
        assert (hang_of(again) is None) is (hang_of(full) is None)


@pytest.mark.parametrize("seed", seeds(4, 40))
def test_transfers_in_one_common_order_never_hang(seed: int) -> None:
    """A receive that is posted at the time of its send never blocks, in any order of operations."""
    random_ = random.Random(seed)
    for _ in range(10):
        layout = check_layout(rows_of(drawn(random_)))
        rows: list[list[Cell]] = [[] for _ in layout.rows]
        waiting = [list(cells) for cells in layout.rows]
        done: set[Action] = set()
        while any(waiting):
            ready = [row for row, cells in enumerate(waiting) if cells and may_run(layout, cells[0], done)]
            row = random_.choice(ready)
            operation = waiting[row].pop(0)
            assert isinstance(operation, Action)
            rows[row].append(operation)
            done.add(operation)
            sent = layout.transfers_of(operation)[1]
            if sent is not None:
                other = layout.other_end(sent)
                done.add(other)
                rows[row] += [None, sent, None]
                rows[layout.home[other.stage]] += [None, other, None]
        assert hang_of(check_layout(tuple(map(tuple, rows)))) is None


def may_run(layout: Layout, operation: Cell, done: set[Action]) -> bool:
    """Return whether an operation's inputs are present: received, or produced earlier on its device."""
    assert isinstance(operation, Action)
    received, _ = layout.transfers_of(operation)
    if received is not None:
        return received in done
    forward = operation.kind is Kind.FORWARD
    if operation.kind is Kind.WEIGHT:
        return True
    other = layout.neighbours.get((operation.stage, -1 if forward else 1))
    return other is None or bool(
        done & {Action(kind, other, operation.batch) for kind in ((Kind.FORWARD,) if forward else BACKWARDS)}
    )
