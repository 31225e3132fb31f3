"""`hiremate`: its partition, its pieces' figures, a schedule worked by hand, and comparison with exhaustive search."""

import itertools

import pytest

import remat
from remat.schedule.document import Run
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.hierarchy.hiremate import LEAVES, Hierarchy, Late, digest
from remat_algorithms.dag.hierarchy.network import network_of
from remat_algorithms.dag.hierarchy.options import Option, on_grid, subgraph_of, undominated
from remat_algorithms.dag.hierarchy.partition import partition
from remat_algorithms.dag.literature.retention_phases import training_of
from tests.algorithms.dag.graphs import document, seeded, training
from tests.algorithms.dag.layered_training import layered
from tests.oracles import search


def network(graph):
    return network_of(training_of(make_problem(remat.load(graph)), "test"))


def row(sizes):
    """A chain of five forward tasks of times 1, 2, 4, 2, 1; b4 to b0 read the value before them and their own."""
    tasks = [
        {"id": f"f{i}", "time": time, "size": size, "reads": [f"f{i - 1}"] if i else [], "phase": "forward"}
        for i, (time, size) in enumerate(zip((1, 2, 4, 2, 1), sizes, strict=True))
    ]
    for i in reversed(range(5)):
        reads = [*([f"f{i - 1}"] if i else []), *([f"b{i + 1}"] if i < 4 else []), f"f{i}"]
        tasks.append({"id": f"b{i}", "time": 3, "size": 1, "reads": reads, "phase": "backward"})
    return document(tasks, outputs=["b0"])


def test_a_schedule_worked_by_hand():
    """All five values take 4, all five gradients 1.

    b4 needs f4, and f0 to f3 are kept for the others: 21 bytes with b4. Within 17, one of them is given up. f0 costs 1,
    and is made again before b1, where f1, f0, b2 and b1 take 10 bytes. Within 14, f1 is given up, too (1 + 2). Both are
    made again before b2, which then holds f0, f1, f2, b3 and b2: 14 bytes.
    """
    graph = row((4, 4, 4, 4, 4))
    whole, one, two = (remat.solve(graph, algorithm="hiremate", budget=budget) for budget in (21, 17, 14))
    assert (whole.makespan, one.makespan, two.makespan) == (25, 26, 28)
    assert order_of(one) == ["f0", "f1", "f2", "f3", "f4", "b4", "b3", "b2", "f0", "b1", "b0"]
    assert order_of(two) == ["f0", "f1", "f2", "f3", "f4", "b4", "b3", "f0", "f1", "b2", "b1", "b0"]


def test_a_schedule_is_there_before_any_part_is_solved(monkeypatch):
    """The time may end at once: 2,001 tasks, half of the memory."""

    def no_time(hierarchy, part, slots):
        raise Late

    monkeypatch.setattr(Hierarchy, "level", no_time)
    sizes = [1 + k * k % 7 for k in range(1000)]
    chain = remat.chain(
        forward_time=sizes, backward_time=2, output_size=sizes, saved_size=3, time_unit="unit", size_unit="unit"
    )
    most = max(remat.solve(chain, algorithm="keep-all").peak_memory.values())
    found = remat.solve(chain, algorithm="hiremate", budget=most // 2)
    assert found.report is not None
    assert max(found.peak_memory.values()) <= most // 2


def order_of(result):
    return [step.task for step in result.steps if isinstance(step, Run)]


def test_never_better_than_exhaustive_search_and_no_worse_than_its_parts():
    answered = recomputed = reached = 0
    for seed in range(7):
        graph = training(seeded(seed), 5)
        highest = max(remat.solve(graph, algorithm="keep-all").peak_memory.values())
        least = search.chain_least_budget(graph)
        for budget in {(least + highest) // 2, highest - 1} - {least - 1}:
            optimum = search.chain_best(graph, budget)
            found = [
                remat.solve(graph, algorithm="hiremate", budget=budget, options={"leaf": leaf}).makespan
                for leaf in (0, 1, *LEAVES)
            ]
            known = [makespan for makespan in found if makespan is not None]
            assert all(makespan >= optimum for makespan in known)
            assert found[0] == min((part for part in found[2:] if part is not None), default=None)
            if known:
                answered += 1
                recomputed += found[0] > sum(task["time"] for task in graph["tasks"])
                reached += found[0] == optimum
    assert answered >= 8
    assert recomputed >= 3
    assert reached >= 0.7 * answered


@pytest.mark.parametrize("seed", range(10))
def test_a_partition_has_the_cheapest_cuts(seed):
    rng = seeded(seed)
    cut = [rng.randint(0, 9) for _ in range(rng.randint(2, 9))]
    count, leaf = len(cut) - 1, rng.randint(1, 6)
    least = -(-leaf // 3)
    allowed = []
    for number in range(count):
        for inner in itertools.combinations(range(1, count), number):
            lengths = [b - a for a, b in itertools.pairwise((0, *inner, count))]
            # The first and the last one may be shorter.
            if max(lengths) <= leaf and all(length >= least for length in lengths[1:-1]):
                allowed.append(sum(cut[place] for place in inner))
    found = partition(cut, leaf, 2, 128).parts
    assert [part.low for part in found] == [0, *(part.high for part in found[:-1])]
    assert max(part.high - part.low for part in found) <= leaf
    assert sum(cut[part.low] for part in found[1:]) == min(allowed)


def test_parts_are_limited_at_each_level():
    def check(part, most):
        assert len(part.parts) <= most
        for inner in part.parts:
            check(inner, 4)

    plan = partition([1] * 301, 3, 4, 10)
    check(plan, 10)


@pytest.mark.parametrize("seed", range(20))
def test_a_piece_has_the_peak_of_its_replay(seed):
    graph = training(seeded(seed), 6)
    net = network(graph)
    stages = net.training.stages
    runs = list(range(len(net.stage)))
    replay = stages.replay([stages.tasks[net.stage[position]] for position in runs])
    piece = net.measure(runs, 0, stages.ends)
    assert piece.time == replay.time
    always = {place.value for place in stages.graph.inputs} | {value for value, held in enumerate(net.held) if held}
    fixed = stages.graph.static_memory + sum(net.size[value] for value in always)
    assert piece.peak + fixed == replay.peak
    assert not piece.needed


def test_equal_subgraphs_are_known_by_their_digest():
    net = network(layered(6))
    found = [digest(subgraph_of(net, 3 * layer, 3 * layer + 3)) for layer in range(6)]
    assert found[1] == found[2] == found[3] == found[4]
    assert digest(subgraph_of(net, 2, 5)) != found[1]


def test_the_grid_keeps_the_extremes_of_the_front():
    options = [Option((number,), 20 - number, number, 2 * number, 30 - number) for number in range(20)]
    assert undominated([*options, Option((), 25, 30, 60, 40)]) == options[::-1]
    kept = on_grid(options, 3, 3)
    assert len(kept) <= 11
    assert {options[0], options[-1]} <= set(kept)


def test_a_graph_that_does_not_fit_names_a_budget_that_is_enough():
    named = 0
    for seed in range(8):
        graph = training(seeded(seed), 5)
        refused = remat.solve(graph, algorithm="hiremate", budget=search.chain_least_budget(graph))
        if refused.makespan is None:
            named += 1
            enough = refused.least_budget.size
            assert remat.solve(graph, algorithm="hiremate", budget=enough).makespan is not None
    assert named
