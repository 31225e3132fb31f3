"""Optima of the papers' models against brute force: lower sets, single-reforward checkpoints, cuts, knapsacks."""

import itertools

import networkx as nx
import numpy as np
import pytest

import remat
from remat.generate import generate
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.literature import knapsack, lower_sets
from remat_algorithms.dag.literature.baselines import articulation_points
from remat_algorithms.dag.literature.division import divided_bytes
from remat_algorithms.dag.literature.feng_huang import best_checkpoints, divided_checkpoints, fewest_bytes, segments_of
from remat_algorithms.dag.literature.min_cut import by_intensity, cut_network, minimum_cut, nearest_cut
from remat_algorithms.dag.literature.retention_phases import training_of
from tests.algorithms.dag.graphs import forward_edges, layered, seeded, training

NEVER = 10**9


def found_in(document):
    return training_of(make_problem(remat.load(document)), "test")


def drawn(seed, most=7):
    rng = seeded(seed)
    return found_in(training(rng, rng.randint(1, most), most_reads=3))


# --- Kusumoto et al. --------------------------------------------------------------------------------------------------


def is_lower(part, before):
    return all(other in part for vertex in part for other in before[vertex])


def canonical(sequence, before, size, time):
    """(memory, overhead) of a canonical strategy, straight from the paper's formulas."""
    everything = set(range(len(before)))
    follows = {v: {w for w in everything if v in before[w]} for v in everything}

    def boundary(part):
        return {v for v in part if follows[v] - part}

    def total(weights, part):
        return sum(weights[v] for v in part)

    kept, previous, peak, overhead = set(), set(), 0, 0
    for part in sequence:
        own = part - previous
        ahead = {w for v in part for w in follows[v]}
        feeding = {u for w in ahead for u in before[w]}
        peak = max(
            peak, total(size, kept) + 2 * total(size, own) + total(size, ahead - part) + total(size, feeding - part)
        )
        overhead += total(time, own - boundary(part))
        kept |= boundary(part)
        previous = part
    return peak, overhead


def all_sequences(sets, everything):
    """All ascending sequences of the given sets that end in V."""
    proper = sorted((s for s in sets if s and s != everything), key=len)
    for count in range(len(proper) + 1):
        for chosen in itertools.combinations(proper, count):
            if all(a < b for a, b in itertools.pairwise(chosen)):
                yield [*chosen, everything]


def check_canonical(found):
    before, size, time = found.before, found.weight, found.stages.time[: found.forward]
    everything = frozenset(range(len(before)))
    lower = [
        frozenset(part)
        for count in range(len(before) + 1)
        for part in itertools.combinations(range(len(before)), count)
        if is_lower(part, before)
    ]
    matrix = lower_sets.all_lower_sets(before, NEVER)
    assert {frozenset(np.flatnonzero(row).tolist()) for row in matrix} == set(lower)
    ancestors = {frozenset(np.flatnonzero(row).tolist()) for row in lower_sets.ancestor_sets(before)}
    assert ancestors <= set(lower)
    graph = nx.DiGraph([(v, v) for v in everything] + forward_edges(found))
    assert ancestors == {frozenset(), everything, *(frozenset(nx.ancestors(graph, v) | {v}) for v in everything)}
    outcomes = [canonical(sequence, before, size, time) for sequence in all_sequences(lower, everything)]
    few = [canonical(sequence, before, size, time) for sequence in all_sequences(ancestors, everything)]
    floats = np.array(size, float), np.array(time, float)
    exact = lower_sets.family_of(matrix, before, *floats)
    approximate = lower_sets.family_of(lower_sets.ancestor_sets(before), before, *floats)
    for budget in sorted({peak for peak, _ in outcomes} | {min(peak for peak, _ in outcomes) - 1}):
        best = min((cost for peak, cost in outcomes if peak <= budget), default=None)
        most = max((cost for peak, cost in outcomes if peak <= budget), default=None)
        less = min((cost for peak, cost in few if peak <= budget), default=None)
        answer = lower_sets.best_sequence(exact, budget, "time", Context())
        assert (None if answer is None else answer[0]) == best
        if answer is not None:
            rows = [frozenset(np.flatnonzero(exact.sets[row]).tolist()) for row in answer[1]]
            assert canonical(rows, before, size, time) <= (budget, best)
            assert lower_sets.best_sequence(exact, budget, "memory", Context())[0] == most
        rough = lower_sets.best_sequence(approximate, budget, "time", Context())
        assert (None if rough is None else rough[0]) == less
        assert less is None or best <= less


@pytest.mark.parametrize("seed", range(30))
def test_canonical_strategies_are_optimal_in_the_model(seed):
    check_canonical(drawn(seed, most=6))


@pytest.mark.parametrize("seed", [17, 63, 76, 134, 192, 196, 350])
def test_canonical_strategies_are_optimal_with_more_vertices(seed):
    """Nine or ten vertices; seeds of graphs with few lower sets, all of whose sequences can be tried."""
    rng = seeded(seed)
    check_canonical(found_in(training(rng, rng.randint(8, 10), most_reads=3)))


def test_a_row_of_five_is_condensed():
    """Stages of 3 1 4 1 5 bytes: a cut after stage 2 would keep most, then one after stage 0; the others are left."""
    row, weight = [[], [0], [1], [2], [3]], [3, 1, 4, 1, 5]
    assert lower_sets.condensed(row, weight, 5)[0] == [[0], [1], [2], [3], [4]]
    assert lower_sets.condensed(row, weight, 4)[0] == [[0], [1], [2, 3], [4]]
    groups, found = lower_sets.condensed(row, weight, 3)
    assert groups == [[0, 1], [2, 3], [4]]
    assert found.tolist() == [[False] * 3, [True, False, False], [True, True, False], [True] * 3]
    assert len(lower_sets.with_ancestors(row, groups, found)) == 6


@pytest.mark.parametrize("seed", range(20))
def test_lower_sets_of_condensed_graphs_are_lower_sets(seed):
    found = drawn(seed, most=12)
    every = lower_sets.all_lower_sets(found.before, NEVER)
    for most in (1, 3, 6, len(every) - 1):
        groups, of_groups = lower_sets.condensed(found.before, found.weight, most)
        assert sorted(vertex for group in groups for vertex in group) == list(range(found.forward))
        assert len(of_groups) <= most + 1
        rows = {tuple(row) for row in lower_sets.with_ancestors(found.before, groups, of_groups).tolist()}
        assert rows <= {tuple(row) for row in every.tolist()}
    assert [len(group) for group in groups] == [1] * found.forward


def test_graphs_of_many_lower_sets_are_condensed():
    wide = layered(seeded(0), 4)
    wide["tasks"] = [{"id": f"w{i}", "time": 1, "size": 1, "phase": "forward"} for i in range(20)]
    wide["tasks"].append({"id": "b", "time": 1, "size": 1, "reads": [f"w{i}" for i in range(20)], "phase": "backward"})
    result = remat.solve(wide, algorithm="kusumoto-exact", budget=21, options={"budgets": 4})
    assert result.makespan == 21
    assert "20 forward tasks have too many lower sets" in " ".join(result.notes)
    assert remat.solve(wide, algorithm="kusumoto-approx").makespan == 21


# --- Feng and Huang ---------------------------------------------------------------------------------------------------


def by_components(found, weight, checkpoints):
    return components(found.before, weight, checkpoints)


def components(before, weight, checkpoints):
    graph = nx.Graph((other, vertex) for vertex, earlier in enumerate(before) for other in earlier)
    graph.add_nodes_from(range(len(before)))
    graph.remove_nodes_from(checkpoints)
    largest = max((sum(weight[v] for v in part) for part in nx.connected_components(graph)), default=0)
    return sum(weight[v] for v in checkpoints), largest


@pytest.mark.parametrize("seed", range(40))
def test_single_reforward_checkpoints_are_optimal(seed):
    found = drawn(seed, most=10)
    weight, vertices = found.weight, range(found.forward)
    outcomes = [
        by_components(found, weight, chosen)
        for count in range(found.forward + 1)
        for chosen in itertools.combinations(vertices, count)
    ]
    total, checkpoints = best_checkpoints(found.before, weight, NEVER)
    assert total == min(map(sum, outcomes))
    assert sum(by_components(found, weight, checkpoints)) == total
    for cap in sorted({largest for _, largest in outcomes}):
        used, checkpoints = fewest_bytes(found.before, weight, cap, NEVER, NEVER)
        assert used == min(spent for spent, largest in outcomes if largest <= cap)
        assert by_components(found, weight, checkpoints)[0] == used


# Five stages of 3 1 4 1 5 bytes in a row, divided for segments of at most c:
#   c = 9   1 stored of {1, 3}: 1 leaves 3 and 10, 3 leaves 8 and 5: stage 3, sum 1 + 8
#   c = 8   the same
#   c = 5   both: segments of 3, 4 and 5, sum 2 + 5, the least
#   c = 4   stage 4 has to go as well: 0, 1 (4) | 3 and 4 stored (6) | 2 (4), sum 6 + 4
ROW = [[], [0], [1], [2], [3]]


@pytest.mark.parametrize(("cap", "expected"), [(9, [3]), (8, [3]), (5, [1, 3]), (4, [1, 3, 4])])
def test_a_row_is_divided(cap, expected):
    weight = [3, 1, 4, 1, 5]
    used, checkpoints = divided_bytes(ROW, weight, cap)
    assert used == fewest_bytes(ROW, weight, cap, NEVER, NEVER)[0] == sum(weight[v] for v in expected)
    assert cap == 4 or checkpoints == expected
    assert divided_checkpoints(ROW, weight) == (7, [1, 3])


def test_parallel_sets_are_divided():
    """Stages 1 and 2 side by side between 0 and 3, then 4; all of 2 bytes but for 0 and 3, of 1 each."""
    before, weight = [[], [0], [0], [1, 2], [3]], [1, 2, 2, 1, 2]
    assert divided_bytes(before, weight, 8) == (0, [])
    assert divided_bytes(before, weight, 7) == (1, [3])  # 0, 1 and 2 hang together: 5
    assert divided_bytes(before, weight, 4) == (2, [0, 3])
    assert divided_checkpoints(before, weight) == (4, [0, 3])  # 2 stored, 2 in the largest segment


def drawn_rows_and_parallel_sets(rng, count):
    """Edges between two ends, replaced again and again by two in a row or two side by side."""
    edges = [[0, 1]]
    places = {0: 0.0, 1: 1.0}
    while len(places) < count:
        tail, head = edges.pop(rng.randrange(len(edges)))
        middle = len(places)
        places[middle] = (places[tail] + places[head]) / 2 + rng.random() * 1e-6
        edges += [[tail, middle], [middle, head]] + [[tail, head]] * rng.randrange(2)
    number = {vertex: place for place, vertex in enumerate(sorted(places, key=places.get))}
    before = [[] for _ in places]
    for tail, head in edges:
        before[number[head]].append(number[tail])
    return [sorted(set(earlier)) for earlier in before]


@pytest.mark.parametrize("seed", range(20))
def test_division_is_exact_for_rows_and_parallel_sets(seed):
    rng = seeded(seed)
    before = drawn_rows_and_parallel_sets(rng, rng.randint(4, 10))
    weight = [rng.randint(1, 9) for _ in before]
    for cap in range(max(weight), sum(weight) + 1):
        used, checkpoints = divided_bytes(before, weight, cap)
        assert used == fewest_bytes(before, weight, cap, NEVER, NEVER)[0]
        assert sum(weight[vertex] for vertex in checkpoints) == used
    assert divided_checkpoints(before, weight)[0] == best_checkpoints(before, weight, NEVER)[0]


@pytest.mark.parametrize("seed", range(20))
def test_division_of_any_graph_is_a_division(seed):
    found = drawn(seed, most=10)
    total, checkpoints = divided_checkpoints(found.before, found.weight)
    assert sum(by_components(found, found.weight, checkpoints)) == total
    assert total >= best_checkpoints(found.before, found.weight, NEVER)[0]


@pytest.mark.parametrize("layers", [10, 20, 40])
def test_optimum_of_dense_blocks_is_their_formula(layers):
    """Each layer reads all features before it, norms them (their bytes) and adds 1 byte of features.

    Features are stored, and each norm is a segment: layers + 1 features and the last norm, of layers + 1 bytes.
    """
    before, weight, features = [[]], [1], [0]
    for layer in range(layers + 1):
        before += [list(features), [len(before)]]
        weight += [layer + 1, 1]
        features.append(len(before) - 1)
    total, checkpoints = divided_checkpoints(before, weight)
    assert total <= (layers + 2) + (layers + 1)
    assert total == sum(components(before, weight, checkpoints))


@pytest.mark.parametrize(
    "family", ["unet", *(pytest.param(name, marks=pytest.mark.slow) for name in ("densenet", "inception"))]
)
def test_networks_that_are_wide(family):
    """The class accepts wide networks, and its minimum memory is far below that of `keep-all`."""
    document = generate(
        "dag", family, batch=8, keep_gradients=False, **({"image": 64} if family != "inception" else {"image": 75})
    )
    result = remat.solve(document, algorithm="feng-huang")
    kept = remat.solve(document, algorithm="keep-all")
    assert result.peak_memory["memory"] < 0.85 * kept.peak_memory["memory"]
    assert kept.makespan < result.makespan < 2 * kept.makespan


def test_each_task_of_the_forward_runs_at_most_twice():
    for seed in range(20):
        rng = seeded(seed)
        document = training(rng, 8)
        result = remat.solve(document, algorithm="feng-huang")
        runs = result.columns.runs.tolist()
        assert max(runs.count(task) for task in runs) <= 2


def test_each_stage_of_a_chain_is_recomputed_once():
    stages = [{"forward_time": 3, "backward_time": 1, "output_size": 2 + i % 3, "saved_size": 5} for i in range(20)]
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1, "stages": stages}
    result = remat.solve(chain, algorithm="feng-huang")
    assert 0 < result.recompute_time <= 3 * 20


def test_segments_are_components():
    segment = segments_of([[], [0], [1], [], [2, 3]], [1])
    assert segment[1] == -1
    assert len({segment[0]} & {segment[2]}) == 0
    assert segment[2] == segment[3] == segment[4]


# --- cuts and articulation points -------------------------------------------------------------------------------------


def as_graph(edges, vertices):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(vertices))
    for tail, head, capacity in edges:
        capacity += graph.edges[tail, head]["capacity"] if graph.has_edge(tail, head) else 0
        graph.add_edge(tail, head, capacity=capacity)
    return graph


@pytest.mark.parametrize("seed", range(40))
def test_minimum_cut_is_that_of_networkx(seed):
    found = drawn(seed, most=9)
    order = by_intensity(found)
    for banned in (order[: len(order) // 2], order, []):
        edges, values = cut_network(found, banned)
        expected = nx.minimum_cut_value(as_graph(edges, 2 * len(values) + 2), 2 * len(values), 2 * len(values) + 1)
        flow, saved = minimum_cut(found, banned)
        assert flow == expected == sum(found.stages.size[value] for value in saved)


@pytest.mark.parametrize("seed", range(20))
def test_cut_is_the_least_from_which_all_can_be_recomputed(seed):
    """By trying every set of saved values."""
    found = drawn(seed, most=7)
    stages, banned = found.stages, by_intensity(found)[: found.forward // 2]
    values = [value for t in range(found.forward) for value in stages.writes[t]]

    def enough(saved):
        open_values, seen = [v for v in values if found.backward_uses[v] and v not in saved], set()
        while open_values:
            value = open_values.pop()
            if stages.maker[value] in banned:
                return False
            seen.add(value)
            open_values += [v for v in stages.reads[stages.maker[value]] if v not in saved and v not in seen]
        return True

    subsets = (set(some) for count in range(len(values) + 1) for some in itertools.combinations(values, count))
    least = min(sum(stages.size[v] for v in saved) for saved in subsets if enough(saved))
    flow, saved = minimum_cut(found, banned)
    assert flow == least
    assert enough(set(saved))


def test_flow_through_parallel_and_backward_edges():
    edges = [(0, 1, 3), (0, 2, 2), (1, 2, 5), (1, 3, 2), (2, 3, 3), (0, 1, 1)]
    assert nearest_cut(edges, 0, 3) == (5, {0, 1, 2})


@pytest.mark.parametrize("seed", range(60))
def test_nearest_cut_is_what_the_residual_network_reaches(seed):
    """Of a flow that networkx has found; the source's side is the same whatever the flow."""
    rng = seeded(seed)
    vertices, largest = rng.randint(2, 12), rng.choice([3, 1000, 2**55])
    pairs = [(rng.randrange(vertices), rng.randrange(vertices)) for _ in range(rng.randint(0, 40))]
    edges = [(tail, head, rng.choice([0, rng.randint(0, largest)])) for tail, head in pairs if tail != head]
    residual = nx.algorithms.flow.edmonds_karp(as_graph(edges, vertices), 0, vertices - 1)
    open_edges = [(tail, head) for tail, head, left in residual.edges(data=True) if left["flow"] < left["capacity"]]
    reached = nx.DiGraph(open_edges)
    reached.add_node(0)
    assert nearest_cut(edges, 0, vertices - 1) == (residual.graph["flow_value"], {0} | nx.descendants(reached, 0))


def test_largest_sizes_are_cut_exactly():
    total = 2**62
    edges = [(0, 1, total - 1), (1, 2, total + 1), (0, 3, 1), (3, 4, total + 1), (2, 5, total + 1), (4, 5, total + 1)]
    assert nearest_cut(edges, 0, 5) == (total, {0})


@pytest.mark.parametrize("seed", range(60))
def test_articulation_points_are_those_of_networkx(seed):
    rng = seeded(seed)
    found = found_in(training(rng, rng.randint(1, 14), most_reads=2))
    graph = nx.Graph(forward_edges(found))
    assert articulation_points(found) == sorted(nx.articulation_points(graph))


# --- knapsacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(15))
def test_knapsacks_equal_exhaustive_search(seed):
    rng = seeded(seed)
    count = rng.randint(1, 10)
    scale = rng.choice([1, 10**9 + 7])
    weights = [rng.randint(0, 12) * scale for _ in range(count)]
    values = [rng.randint(0, 20) for _ in range(count)]
    total = sum(weights)
    limits = sorted({total * step // 6 for step in range(7)}, reverse=True)
    subsets = [some for k in range(count + 1) for some in itertools.combinations(range(count), k)]

    def measured(choose):
        answers = list(choose(weights, values, limits, Context()))
        assert all(sum(weights[k] for k in chosen) <= limit for chosen, limit in zip(answers, limits, strict=True))
        return [sum(values[k] for k in chosen) for chosen in answers]

    best = [max(sum(values[k] for k in s) for s in subsets if sum(weights[k] for k in s) <= limit) for limit in limits]
    assert measured(knapsack.choose_by_states) == best
    assert measured(knapsack.choose_by_programme) == best
    assert all(some <= most for some, most in zip(measured(knapsack.choose_greedily), best, strict=True))


def test_rounded_states_keep_to_their_limit(monkeypatch):
    monkeypatch.setattr(knapsack, "MOST_STATES", 20)
    rng = seeded(1)
    weights, values = [rng.randint(1, 10**6) for _ in range(25)], [rng.randint(1, 1000) for _ in range(25)]
    limits = [sum(weights) // 2, sum(weights) // 5]
    for limit, chosen in zip(limits, knapsack.choose_by_states(weights, values, limits, Context()), strict=True):
        assert 0 < sum(weights[k] for k in chosen) <= limit
