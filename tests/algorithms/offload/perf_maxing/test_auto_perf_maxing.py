"""`auto-perf-maxing`: shares and nodes against exhaustive search, and schedules that keep the policy's rules."""

from __future__ import annotations

import itertools
import math
from random import Random
from typing import Any

import pytest

import remat
from remat.generate import generate
from remat.plugin import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.layering import by_names
from remat_algorithms.dag.literature.retention_phases import training_of
from remat_algorithms.offload.perf_maxing.layer_choices import (
    INNER,
    KEEP,
    MEBIBYTE,
    OVERSHOOT,
    REMAKE,
    SEND,
    Room,
    greedy,
    knapsack,
    program,
)
from remat_algorithms.offload.perf_maxing.layer_storages import Node, Storages
from remat_algorithms.offload.perf_maxing.share_program import Limits, shares_of
from tests.algorithms.dag.layered_training import layered
from tests.algorithms.offload.machines import two_memories

FREE = Limits(room=10**9, out=0, back=0, host=math.inf)


def storages_of(document: dict[str, Any]) -> Storages:
    training = training_of(make_problem(remat.load(document), budget=10**15), "a test")
    return Storages(training, by_names(training))


def nodes_of(rng: Random, count: int) -> list[Node]:
    return [
        Node(stage, (stage,), rng.randint(0, 6) * MEBIBYTE, rng.randint(0, 9), alone=rng.random() < 0.7)
        for stage in range(count)
    ]


def remade_time(nodes: list[Node], chosen: list[str]) -> float:
    return sum(node.time for node, what in zip(nodes, chosen, strict=True) if what == REMAKE and node.size)


def size_of(nodes: list[Node], chosen: list[str], what: str) -> int:
    return sum(node.size for node, choice in zip(nodes, chosen, strict=True) if choice == what)


def least_time(nodes: list[Node], keep: float, send: float) -> float:
    """Return the minimum recomputation time over all choices."""
    best = math.inf
    for chosen in itertools.product((KEEP, REMAKE, SEND), repeat=len(nodes)):
        listed = list(chosen)
        if any(what == SEND and not node.alone for node, what in zip(nodes, listed, strict=True)):
            continue
        if size_of(nodes, listed, KEEP) <= keep and size_of(nodes, listed, SEND) <= send:
            best = min(best, remade_time(nodes, listed))
    return best


def test_what_a_graph_saves() -> None:
    """Layer i saves its two inner values of 10, and its output, which the next layer reads and which stays."""
    found = storages_of(layered(4))
    assert found.sizes == [30, 30, 30, 20]  # the last output is the loss's alone
    assert found.staying == [10, 10, 10, 0]
    assert [[(node.size, node.time) for node in nodes] for nodes in found.nodes] == 4 * [[(10, 1), (10, 4)]]
    assert (found.forward_time, found.backward_time) == (7, 5)
    assert found.behind == 12
    assert found.head_water == 1
    assert found.backward_waters == [2, 2, 2, 1]  # a gradient in, one out; the first is the loss's


def test_shares_by_hand() -> None:
    """At the loss 110 and a byte are there, 91 fit: 20 go, of layers whose shares of 30 cost the same."""
    found = storages_of(layered(4))
    limits = Limits(room=91, out=0, back=0, host=0)
    for even in (False, True):
        shares = shares_of(found, limits, Context(), even=even)
        assert shares is not None
        remade = [share * size for share, size in zip(shares.remake, found.sizes, strict=True)]
        assert sum(shares.remake) == pytest.approx(20 / 30, abs=1e-5)
        assert sum(remade) == pytest.approx(20, abs=1e-3)
        if even:  # of the first three; the last one is there as a whole in its backward
            assert max(shares.remake) == pytest.approx(20 / 90, abs=1e-5)


def test_what_crosses_the_link_need_not_be_remade() -> None:
    found = storages_of(layered(4))
    for out, back, sent in ((4, 9, 4), (9, 4, 4), (100, 100, 20)):
        shares = shares_of(found, Limits(room=81, out=out, back=back, host=math.inf), Context(), even=False)
        assert shares is not None
        assert shares.send[-1] == 0
        crossing = [share * size for share, size in zip(shares.send, found.sizes, strict=True)]
        assert max(crossing) <= sent + 1e-9
        bounded = shares_of(found, Limits(room=81, out=out, back=back, host=3), Context(), even=False)
        assert bounded is not None
        assert sum(s * size for s, size in zip(bounded.send, found.sizes, strict=True)) <= 3 + 1e-6
        assert sum(bounded.remake) >= sum(shares.remake) - 1e-9


def test_no_shares_fit_where_one_layer_does_not() -> None:
    assert shares_of(storages_of(layered(4)), Limits(room=31, out=0, back=0, host=0), Context(), even=True) is None


def test_an_even_split_remakes_as_little_and_the_worst_layer_less() -> None:
    found = storages_of(layered(8))
    for room in range(100, 220, 15):
        limits = Limits(room=room, out=3, back=3, host=math.inf)
        vertex, even = (shares_of(found, limits, Context(), even=how) for how in (False, True))
        assert vertex is not None
        assert even is not None
        assert sum(even.remake) == pytest.approx(sum(vertex.remake), abs=1e-4)
        assert max(even.remake) <= max(vertex.remake) + 1e-6


def test_the_program_is_exhaustive_search() -> None:
    rng = Random(1)
    for _ in range(40):
        nodes = nodes_of(rng, rng.randint(1, 6))
        keep, send = rng.randint(0, 20) * MEBIBYTE, rng.randint(0, 12) * MEBIBYTE
        chosen = program(nodes, Room(keep, 0, send), lambda: False)
        assert size_of(nodes, chosen, KEEP) <= keep
        assert size_of(nodes, chosen, SEND) <= OVERSHOOT * send
        assert remade_time(nodes, chosen) == least_time(nodes, keep, OVERSHOOT * send)


def test_the_knapsack_is_exhaustive_search_on_its_grid() -> None:
    rng = Random(2)
    for _ in range(40):
        nodes = nodes_of(rng, rng.randint(1, 6))
        keep, send = rng.randint(0, 20) * MEBIBYTE, rng.randint(0, 12) * MEBIBYTE
        chosen = knapsack(nodes, Room(keep, 0, send), lambda: False)
        assert size_of(nodes, chosen, KEEP) <= keep
        assert size_of(nodes, chosen, SEND) <= send
        assert remade_time(nodes, chosen) == least_time(nodes, keep, send)


def test_the_greedy_by_hand() -> None:
    """Times a byte 5, 1/2, 3 (of a task with two values, not sent), 2, 4."""
    figures = ((2, 10, True), (4, 2, True), (3, 9, False), (5, 10, True), (1, 4, True))
    nodes = [Node(k, (k,), size, time, alone) for k, (size, time, alone) in enumerate(figures)]
    # Room for 6 to be sent: the first, not the third, then the fifth (2 + 1), not the fourth; 4 are remade.
    assert greedy(nodes, Room(keep=8, remake=4, send=6), lambda: False) == [SEND, REMAKE, KEEP, KEEP, SEND]
    # 8 are kept, where 7 may be: the cheapest of them goes, too.
    assert greedy(nodes, Room(keep=7, remake=4, send=6), lambda: False) == [SEND, REMAKE, KEEP, REMAKE, SEND]
    assert greedy(nodes, Room(keep=0, remake=0, send=0), lambda: False) == 5 * [REMAKE]
    # Empty values are never sent.
    assert greedy([Node(0, (0,), 0, 1, alone=True)], Room(keep=0, remake=0, send=0), lambda: False) == [REMAKE]


@pytest.mark.parametrize("inner", INNER)
def test_by_hand_without_a_host(inner: str) -> None:
    """Four layers of which one has to go: in whole mebibytes, so that the grid is exact."""
    document = layered(4, unit=MEBIBYTE)
    plain = remat.solve(document, algorithm="keep-all")
    for budget, least in ((121, 1), (111, 1)):
        result = remat.solve(document, algorithm="auto-perf-maxing", budget=budget * MEBIBYTE, options={"inner": inner})
        assert result.makespan is not None
        assert least <= result.makespan - plain.makespan <= 10
        assert max(result.peak_memory.values()) <= budget * MEBIBYTE


def test_nothing_is_done_where_all_fits() -> None:
    document = layered(3)
    result = remat.solve(document, algorithm="auto-perf-maxing", budget=101, machine=two_memories(1))
    assert result.makespan == remat.solve(document, algorithm="keep-all").makespan
    assert result.report.transferred == {("device", "host"): 0, ("host", "device"): 0} or not sum(
        result.report.transferred.values()
    )


STEP = generate(
    "dag", "transformer", layers=6, hidden=64, heads=4, sequence=64, vocabulary=32, batch=8, bandwidth=1e10, flops=1e12
)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("split", ["vertex", "even"])
@pytest.mark.parametrize("layers", ["names", "narrow"])
def test_schedules_keep_the_rules(inner: str, split: str, layers: str) -> None:
    """Once more at most, just before its first reader; what leaves is waited for behind the next layer."""
    machine = two_memories("2GB/s")
    free = remat.solve(STEP, algorithm="keep-all", machine=machine)
    least, most = free.memory_bounds["device"].size, free.peak_memory["device"]
    options = {"inner": inner, "split": split, "layers": layers}
    result = remat.solve(
        STEP, algorithm="auto-perf-maxing", machine=machine, budget=least + (most - least) // 2, options=options
    )
    assert result.makespan is not None
    assert result.peak_memory["device"] <= least + (most - least) // 2
    steps = [step for step in result.to_dict()["steps"] if "run" in step]
    names = [step["run"] for step in steps]
    forward = [task["id"] for task in STEP["tasks"] if task["phase"] == "forward"]
    assert max(names.count(name) for name in names) == 2
    assert names[: len(forward)] == forward
    reads = {task["id"]: task["reads"] for task in STEP["tasks"]}
    writes = {task["id"]: task.get("writes", [task["id"]]) for task in STEP["tasks"]}
    for place in range(len(forward), len(names)):
        if names[place] in forward:
            rest = names[place + 1 :]
            reader = next(k for k, name in enumerate(rest) if set(reads[name]) & set(writes[names[place]]))
            assert all(name in forward for name in rest[:reader]), "something else runs before it is read"


def test_what_leaves_is_waited_for_behind_the_next_layer() -> None:
    """Slow links, generous shares: a layer's forward takes longer than all before, since it waits."""
    machine = two_memories("2GB/s")
    free = remat.solve(STEP, algorithm="keep-all", machine=machine)
    least, most = free.memory_bounds["device"].size, free.peak_memory["device"]
    budget = least + (most - least) // 2
    result = remat.solve(STEP, algorithm="auto-perf-maxing", machine=machine, budget=budget, options={"split": "even"})
    steps = result.to_dict()["steps"]
    out = [step for step in steps if step.get("to") == "host"]
    assert out
    sizes = {value["id"]: value["size"] for value in STEP["values"]}
    sizes |= {task["id"]: task["size"] for task in STEP["tasks"] if "size" in task}
    started = {}
    for step in steps:
        if "run" in step:
            started.setdefault(step["run"], step["start"])
    forward = [task["id"] for task in STEP["tasks"] if task["phase"] == "forward"]
    for step in out:
        layer = int(step["copy"].split(".")[0])
        last = max(k for k, name in enumerate(forward) if name.startswith(f"{layer + 1}."))
        end = step["start"] + sizes[step["copy"]] / 2e9
        assert started[forward[last + 1]] >= end - 1e-12
    # Each value returns only after the backward of the next layer has started.
    for step in steps:
        if step.get("to") == "device":
            layer = int(step["copy"].split(".")[0])
            first = min(start for name, start in started.items() if name.startswith(f"{layer + 1}.") and ".d" in name)
            assert step["start"] >= first - 1e-12


def test_layers_that_cannot_be_found() -> None:
    tasks = [
        {"id": "f", "time": 1, "reads": [], "size": 10, "phase": "forward"},
        {"id": "b", "time": 1, "reads": [], "size": 15, "phase": "backward"},
        {"id": "c", "time": 1, "reads": ["f"], "size": 1, "phase": "backward"},
    ]
    units = {"time": "unit", "memory": "unit"}
    document = {"schema": "remat.instance/1", "kind": "dag", "units": units, "tasks": tasks}
    result = remat.solve(document, algorithm="auto-perf-maxing", budget=24)
    assert result.status == "unknown"
    assert result.notes[0].startswith("auto-perf-maxing: no layers")
