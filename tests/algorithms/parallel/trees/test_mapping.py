"""Test static mappings: rounding of shares, waves, and runs of a node on all processors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.instance import load
from remat.plugin.problem import Problem
from remat.solving.problem_setup import make_problem
from remat_algorithms.parallel.trees.par_subtrees import split_subtrees
from remat_algorithms.parallel.trees.parallel_tree import ParallelTree
from remat_algorithms.parallel.trees.processor_shares import least_bytes, split, waves
from tests.algorithms.parallel.cases import peak, solve, tree


def star(work):
    return parallel_tree([-1] + [0] * len(work), [1] * (len(work) + 1), time=[0, *work])


def parallel_tree(*arrays, **more):
    problem: Problem = make_problem(load(tree(*arrays, **more)))
    return ParallelTree.of(problem)


def groups(work, processors):
    children = star(work).children[0]
    return [
        ([work[child - 1] for child in group.children], group.processors)
        for group in split(star(work), children, processors)
    ]


@pytest.mark.parametrize(
    ("work", "processors", "expected"),
    [
        ([3, 1], 4, [([3], 3), ([1], 1)]),
        ([6, 1, 1], 4, [([6], 3), ([1, 1], 1)]),
        ([100, 1, 1], 4, [([1, 1, 100], 4)]),
        ([5, 5, 5], 3, [([5], 1), ([5], 1), ([5], 1)]),
        ([5, 4], 1, [([5, 4], 1)]),
        ([0, 0], 4, [([0], 2), ([0], 2)]),
        ([3, 3, 2, 2, 2], 2, [([3, 2], 1), ([3, 2, 2], 1)]),
        ([7], 5, [([7], 5)]),
    ],
)
def test_processor_shares_are_rounded_as_by_hand(work, processors, expected):
    assert sorted(groups(work, processors)) == sorted(expected)


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 3, 10, 100, 0.1, 1e9]), min_size=1, max_size=20), st.integers(1, 12))
def test_groups_are_disjoint_and_hold_everyone(work, processors):
    shared = star(work)
    found = split(shared, shared.children[0], processors)
    used = [group.first + offset for group in found for offset in range(group.processors)]
    assert len(set(used)) == len(used)
    assert set(used) <= set(range(processors))
    assert sorted(child for group in found for child in group.children) == list(range(1, len(work) + 1))
    # Children on a single processor follow each other; only there may a group be large.
    assert all(group.processors == 1 or len(group.children) == 1 for group in found) or len(found) < processors


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(0, 20),
    st.integers(2, 4),
)
def test_waves_of_leaves_fit_the_budget(leaves, extra, processors):
    size, workspace = [1, *(f for f, _ in leaves)], [0, *(m for _, m in leaves)]
    shared = parallel_tree([-1] + [0] * len(leaves), size, workspace=workspace)
    budget = shared.peak[0] + extra
    held = 0
    for wave in waves(shared, shared.children[0], processors, budget):
        assert held + sum(least_bytes(shared, group) for group in wave) <= budget
        held += sum(shared.size[child] for group in wave for child in group.children)


def cost_by_definition(shared, removed, processors):
    cut = set(removed)
    roots = [child for node in removed for child in shared.children[node] if child not in cut]
    work = sorted((shared.work[root] for root in roots), reverse=True)
    return (work[0] if work else 0) + sum(shared.time[node] for node in removed) + sum(work[processors:])


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(st.data())
def test_subtrees_are_split_like_the_oracle(data):
    count, processors = data.draw(st.integers(1, 15)), data.draw(st.integers(1, 4))
    parent = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, count))]
    time = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    shared = parallel_tree(parent, [1] * count, time=time)
    roots = split_subtrees(shared, processors)
    below = set(roots)
    for node in range(count):
        if parent[node] in below:
            below.add(node)
    rest = [node for node in range(count) if node not in below]
    found = shared.work[0] if roots == [0] else cost_by_definition(shared, rest, processors)
    # All splittings that the procedure meets: always the subtree with the most work goes.
    removed, queue, costs = [], [0], [shared.work[0]]
    while True:
        head = min(queue, key=lambda node: (-shared.work[node], node))
        if not shared.children[head]:
            break
        queue = [node for node in queue if node != head] + shared.children[head]
        removed.append(head)
        costs.append(cost_by_definition(shared, removed, processors))
    assert found == min(costs)


def test_all_to_all_uses_all_processors():
    document = tree([-1, 0, 0], [1, 1, 1], time=[8, 8, 16], parallel={"max": 4, "alpha": 0.5})
    result = solve(document, "all-to-all", 8)
    assert result.makespan == 16
    assert all(step.on == ("cpu0", "cpu1", "cpu2", "cpu3") for step in result.steps)
    assert peak(result) == peak(remat.solve(document, algorithm="liu-postorder"))


def test_all_to_all_needs_node_parallelism():
    with pytest.raises(remat.OptionError, match="give the instance `parallel`"):
        solve(tree([-1, 0], [1, 1]), "all-to-all", 2)
    assert solve(tree([-1, 0], [1, 1]), "all-to-all", 1).makespan == 2


def test_proportional_runs_subtrees_on_their_own_processors():
    # Two chains of equal work below the root, each on two of four processors.
    document = tree([-1, 0, 0, 1, 2], [1] * 5, time=[4, 2, 2, 6, 6], parallel={"max": 4, "alpha": 1.0})
    result = solve(document, "proportional", 4)
    on = {step.task: set(step.on) for step in result.steps}
    assert on["T1"] == on["T3"]
    assert on["T2"] == on["T4"]
    assert on["T1"].isdisjoint(on["T2"])
    assert len(on["T0"]) == 4
    assert result.makespan == 5
    assert any("rounded" in note for note in result.notes)


def test_memory_aware_serialises_where_it_must():
    # Two subtrees with peak 10 each and output 1: both at once need 20, one after the other 11.
    document = tree([-1, 0, 0], [1, 1, 1], workspace=[0, 9, 9], time=[1, 4, 4], parallel={"max": 2, "alpha": 1.0})
    assert solve(document, "memory-aware", 2, 20).makespan == 4.5
    serial = solve(document, "memory-aware", 2, 19)
    assert (serial.makespan, peak(serial)) == (4.5, 11)
    assert [len(step.on) for step in serial.steps] == [2, 2, 2]


def test_memory_aware_follows_liu_where_no_post_order_fits():
    document = remat.example("postorder_trap_k3_b3")
    optimal = peak(remat.solve(document, algorithm="liu"))
    result = solve(document, "memory-aware", 4, optimal)
    assert peak(result) <= optimal < peak(remat.solve(document, algorithm="liu-postorder"))
    assert any("Liu's order" in note for note in result.notes)
