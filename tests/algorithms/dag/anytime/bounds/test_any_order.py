"""The bound over all orders: never above the best of all schedules, whatever the moments, and mostly equal to it."""

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.solving.single import make_problem
from remat.testing import strategies
from remat_algorithms.dag.anytime.bounds.any_order import AnyOrder
from remat_algorithms.dag.anytime.bounds.blocks import facts_of
from remat_algorithms.dag.anytime.bounds.gaps import lives_of
from remat_algorithms.dag.anytime.bounds.lineage import Lineage, choose, speaks_for_all
from remat_algorithms.dag.plans.model import stage_model
from remat_algorithms.kit.programs.cp_sat import solve
from tests.oracles import search


def training(draw, depth):
    """Return a document of forward tasks, and backward tasks that read them in reverse, with some more reads."""
    tasks = []
    for i in range(depth):
        reads = {f"f{i - 1}"} if i else set()
        if i > 1 and draw.random() < 0.3:
            reads.add(f"f{draw.randrange(i - 1)}")
        tasks.append((f"f{i}", reads))
    for i in reversed(range(depth)):
        reads = {f"f{i}", *([f"b{i + 1}"] if i < depth - 1 else [])}
        if draw.random() < 0.3:
            reads.add(f"f{draw.randrange(depth)}")
        tasks.append((f"b{i}", reads))
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": [
            {
                "id": name,
                "time": draw.randint(1, 6),
                "size": draw.choice([0, 1, 1, 2, 3, 5]),
                "reads": sorted(reads),
                **({"workspace": 2} if draw.random() < 0.1 else {}),
                **({"in_place": True} if draw.random() < 0.15 else {}),
                **({"recomputable": False} if draw.random() < 0.1 else {}),
            }
            for name, reads in tasks
        ],
        "outputs": ["b0"],
    }


def lineage_of(model):
    return Lineage.of(facts_of(model, lives_of(model)))


def any_chain(draw, lineage):
    """Return some items, each an ancestor of the next."""
    items = range(lineage.facts.model.stages)
    chain = [draw.choice(items)]
    while below := [item for item in items if lineage.after[chain[-1]] >> item & 1]:
        if draw.random() < 0.2:
            break
        chain.append(draw.choice(below))
    return chain


def bound_of(lineage, budget, chain, known=0.0):
    model = lineage.facts.model
    built = AnyOrder.build(lineage, budget, chain)
    assert built is not None
    answer = solve(built.program, seconds=None, stopped=lambda: False, step=model.time_step, known=known)
    assert answer.ended
    return answer.bound


def peak_of(document):
    return next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))


def compare(document, seed):
    """Compare bounds with the best of all schedules, at every budget worth the name; return how many were met."""
    model = stage_model(make_problem(remat.load(document)))
    lineage, draw, met = lineage_of(model), random.Random(seed), []
    for budget in range(max(1, peak_of(document) * 2 // 3), peak_of(document)):
        best = search.chain_best(document, budget)
        over = float("inf") if best is None else (best - model.once_makespan) / model.time_unit
        chain, known = lineage.chain(), 0.0
        for count in sorted({1, 2, len(chain)}):
            bound = bound_of(lineage, budget, choose(chain, lineage.level, count), known)
            assert known * (1 - 1e-9) <= bound <= over * (1 + 1e-9)
            known = bound
            if bound == float("inf"):
                break
        assert bound_of(lineage, budget, any_chain(draw, lineage)) <= over * (1 + 1e-9)
        met += [known >= over * (1 - 1e-9)] * (0 < over < float("inf"))
    return met


@settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.dags(largest=6, plain=True, exact=True), st.integers(0, 1000))
def test_below_every_schedule_of_any_graph(document, seed):
    if speaks_for_all(make_problem(remat.load(document)), stage_model(make_problem(remat.load(document)))):
        compare(document, seed)


def test_mostly_equal_to_the_best_schedule_of_training_graphs():
    met = [one for seed in range(40) for one in compare(training(random.Random(seed), 2 + seed % 3), seed)]
    assert len(met) > 40
    assert sum(met) > 0.9 * len(met)


@pytest.mark.parametrize("seed", range(3))
def test_ways_and_levels_are_those_of_the_definition(seed):
    document = dict(generate("dag", "layered", nodes=30, seed=seed))
    model = stage_model(make_problem(remat.load(document)))
    lineage = lineage_of(model)
    facts, items = lineage.facts, range(model.stages)
    before = [set() for _ in items]
    for item in items:
        for value in facts.reads[item]:
            before[item] |= before[lineage.producer[value]] | {lineage.producer[value]}
    for item in items:
        for other in items:
            known = True if other in before[item] else False if other == item or item in before[other] else None
            assert lineage.has_run(other, item) is known
        there = [
            value
            for value, made in enumerate(lineage.producer)
            if made in before[item]
            and (model.tables.stays[value] or any(user == item or item in before[user] for user in facts.users[value]))
        ]
        assert lineage.level[item] == lineage.own[item] + sum(model.tables.size[value] for value in there)
    chain = lineage.chain()
    assert all(one in before[other] for one, other in itertools.pairwise(chain))
    parts = [set(choose(chain, lineage.level, count)) for count in range(1, len(chain) + 1)]
    assert all(less <= more for less, more in itertools.pairwise(parts))
    assert parts[-1] == set(chain)
    assert max(lineage.level) <= peak_of(document)


def small(**more):
    tasks = [
        {"id": "a", "time": 1, "reads": [], "writes": ["x"]},
        {"id": "b", "time": 1, "reads": ["x"], "writes": ["y"]},
    ]
    values = [{"id": "x", "size": 1}, {"id": "y", "size": 1}]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values, "outputs": ["y"], **more}


def speaks(document):
    problem = make_problem(remat.load(document))
    return speaks_for_all(problem, stage_model(problem))


def test_claims_for_all_schedules_only_where_there_is_nothing_else_to_do():
    assert speaks(small())
    host = {
        "memories": [{"name": "device", "capacity": 2}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "device"}],
        "links": [{"source": "device", "target": "host", "bandwidth": 1}],
    }
    assert not speaks(small(machine=host))
    two = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m"}, {"name": "q", "memory": "m"}]}
    assert not speaks(small(machine=two))
    other = {"id": "c", "time": 1, "reads": [], "writes": ["x"], "required": False}
    assert not speaks(small(tasks=[*small()["tasks"], other]))
    # Nobody can ever run this one's maker: still there is a second way that nobody has looked at.
    assert not speaks(small(inputs=["x"]))


def test_a_program_is_given_up_where_the_solve_stops():
    lineage = lineage_of(stage_model(make_problem(remat.load(training(random.Random(0), 4)))))
    asked = []

    def stopped():
        asked.append(None)
        return len(asked) == 3

    assert AnyOrder.build(lineage, 3, lineage.chain(), stopped) is None
    assert len(asked) == 3


def test_infeasible_in_any_order():
    # No task needs more than 8, but c's inputs are both there when it runs, and b cannot be made again.
    tasks = [
        {"id": "a", "time": 1, "size": 3, "recomputable": False},
        {"id": "b", "time": 1, "size": 3, "reads": ["a"]},
        {"id": "c", "time": 1, "size": 3, "reads": ["b"]},
        {"id": "d", "time": 1, "size": 1, "reads": ["a", "c"]},
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["d"]}
    result = remat.solve(document, algorithm="dag-auto", budget=8)
    assert search.chain_best(document, 8) is None
    assert (result.status, result.scope) == ("infeasible", "all schedules")


@pytest.mark.parametrize("options", [{}, {"reorder": True}, {"iterations": 3}])
def test_a_training_graph_is_optimal_in_any_order(options):
    instance = remat.load(remat.example("unet_joint"))
    budget = peak_of(instance) * 8 // 10
    result = remat.solve(instance, algorithm="dag-auto", budget=budget, time_limit=30, threads=2, options=options)
    assert (result.status, result.optimal_within) == ("optimal", "all schedules")
    assert result.makespan > remat.solve(instance, algorithm="keep-all").makespan


def test_no_claim_for_all_schedules_beside_a_second_memory():
    tasks = [{"id": f"f{i}", "time": 1, "size": 1, "reads": [f"f{i - 1}"] if i else []} for i in range(6)]
    tasks += [
        {"id": f"b{i}", "time": 1, "size": 1, "reads": [f"f{i}", *([f"b{i + 1}"] if i < 5 else [])]}
        for i in reversed(range(6))
    ]
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["b0"]}
    host = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "device"}],
        "links": [{"source": "device", "target": "host", "bandwidth": 100}],
    }
    budget = {"device": peak_of(document) - 1}
    result = remat.solve({**document, "machine": host}, algorithm="dag-auto", budget=budget)
    assert result.makespan > remat.solve(document, algorithm="keep-all").makespan
    assert result.optimal_within == "schedules in the reference order, in one memory"
    assert [bound.source for bound in result.bounds if bound.scope == "all schedules"] == ["needed tasks"]
