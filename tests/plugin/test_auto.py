"""The algorithms that `auto` runs, by their declarations."""

import pytest

import remat
from remat.plugin import registry, selection
from remat.plugin.options import make_options
from remat.plugin.registry import Algorithm, Trial
from remat.plugin.selection import candidates
from remat.solving.problem_setup import make_problem
from remat.testing.cases import moderate


def adjoint(steps=4, **more):
    return {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps, **more}


OWN_STEPS = [{"forward_time": time} for time in (1, 2, 3, 4)]
DISK = [{"name": "disk"}]
OWN_SIZES = [{"state_size": size} for size in (1, 2, 3, 2)]
ELSEWHERE = {
    "memories": [{"name": "host"}, {"name": "device"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": "host", "target": "device", "latency": 1}, {"source": "device", "target": "host"}],
}
OFFLOADING = ELSEWHERE | {"processors": [{"name": "gpu", "memory": "host"}]}
ONE_WAY = OFFLOADING | {"links": OFFLOADING["links"][:1]}
VARIANTS = moderate("chain") | {
    "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 2, "variants": [{"saved_size": 3}, {}]}] * 4
}
LONG = moderate("chain") | {"stages": moderate("chain")["stages"][:1] * 1001}
VERY_LONG = LONG | {"stages": LONG["stages"] * 3}
SLOW = [{"name": "disk", "write_time": 1}]
RAM = {"name": "ram", "slots": 5}
SYNCHRONOUS = {"name": "disk", "write_time": 8, "read_time": 8}
BESIDE = {**SYNCHRONOUS, "channel": "dma"}


def asked(document, budget=None):
    chosen = candidates(make_problem(remat.load(document), budget=budget))
    return [candidate.algorithm.name for candidate in chosen.early + chosen.ending + chosen.anytime]


PARAMETERS = moderate("chain") | {
    "schema": "remat.instance/2",
    "stages": [stage | {"parameter_size": 3, "update_time": 1} for stage in moderate("chain")["stages"]],
}

DAG = moderate("dag")
CHAIN_SEARCH, LISTED = ["chain-best"], ["sp-order", "join-dp", "dag-exact", "dag-auto", "dag-auto"]
LATER_BESIDE = ["revolve", "adjoint-best"]

ROWS = [
    ("chain", moderate("chain"), None, CHAIN_SEARCH),
    ("chain of moderate length", LONG | {"stages": LONG["stages"][:50]}, None, ["chain-best", "hiremate"]),
    ("chain with variants", VARIANTS, None, ["rotor", "dag-auto"]),
    ("long chain with variants", VARIANTS | {"stages": VARIANTS["stages"] * 300}, None, ["dag-auto"]),
    ("long chain", LONG, None, ["chain-best", "rotor", "dag-auto"]),
    ("very long chain", VERY_LONG, None, ["chain-best", "dag-auto"]),
    (
        "chain that can offload",
        moderate("chain") | {"machine": OFFLOADING},
        None,
        ["remat-offload-best", "dag-offload-best", "offload-greedy", "chain-best"],
    ),
    (
        "long chain that can offload",
        LONG | {"machine": OFFLOADING},
        None,
        ["dag-offload-best", "offload-greedy", "chain-best", "rotor"],
    ),
    ("chain with parameters", PARAMETERS, None, ["dag-auto"]),
    (
        "chain with parameters that can offload",
        PARAMETERS | {"machine": OFFLOADING},
        None,
        ["weight-offload", "dag-auto", "dag-offload-best", "offload-greedy"],
    ),
    (
        "chain whose ranks share out states",
        PARAMETERS | {"schema": "remat.instance/3", "sharding": {"data": 2, "zero": 2}},
        None,
        ["zero"],
    ),
    (
        "chain whose parameters may lie anywhere",
        PARAMETERS
        | {"schema": "remat.instance/3", "machine": OFFLOADING, "parameter_memory": "any", "optimizer_memory": "any"},
        None,
        ["weight-offload", "zero", "granular-offload"],
    ),
    (
        "chain whose steps follow each other without end",
        PARAMETERS | {"schema": "remat.instance/3", "machine": OFFLOADING, "staleness": 0},
        None,
        ["zero", "zero-offload", "zero-infinity"],
    ),
    ("chain without a link back", moderate("chain") | {"machine": ONE_WAY}, None, CHAIN_SEARCH),
    ("everything fits", adjoint(), None, ["store-all", "adjoint-dp", "revolve", "adjoint-best"]),
    ("everything just fits", adjoint(), 4, ["store-all", "adjoint-dp", "revolve", "adjoint-best"]),
    ("not everything fits", adjoint(), 3, ["adjoint-dp", "revolve", "adjoint-best"]),
    ("adjoints of another size", adjoint(adjoint_size=2), 4, ["revolve", "adjoint-best"]),
    ("little storage", adjoint(storage=DISK), 2, ["revolve", "walther-griewank", "adjoint-best"]),
    ("storage takes time", adjoint(storage=SLOW), None, ["h-revolve", "revolve", "walther-griewank", "adjoint-best"]),
    ("tapes", adjoint(250, tape_size=3), 40, ["revolve", "adjoint-best", "hiremate"]),
    ("many steps and tapes", adjoint(5000, tape_size=1), None, ["revolve"]),
    ("a second level", adjoint(100, storage=[RAM, BESIDE]), None, ["two-level-async", "revolve", "adjoint-best"]),
    ("2000 steps, a second level", adjoint(2000, storage=[RAM, BESIDE]), None, ["two-level-async", *LATER_BESIDE]),
    ("one level, beside", adjoint(3000, storage=[BESIDE]), None, LATER_BESIDE),
    ("many steps, a second level", adjoint(10**5, storage=[RAM, BESIDE]), None, ["two-level-async", "revolve"]),
    (
        "many steps, two levels",
        adjoint(10**5, storage=[RAM, SYNCHRONOUS]),
        None,
        ["two-level-async", "periodic-disk-revolve", "two-level", "revolve"],
    ),
    ("own steps, not everything fits", adjoint(OWN_STEPS), 3, ["adjoint-dp", "adjoint-best"]),
    ("own steps, storage takes time", adjoint(OWN_STEPS, storage=SLOW), None, ["walther-griewank", "adjoint-best"]),
    ("own sizes", adjoint(OWN_SIZES, storage=SLOW), 3, ["adjoint-best"]),
    ("very many own sizes", adjoint(OWN_SIZES * 2000, storage=SLOW), 3, ["adjoint-best"]),
    ("tree", moderate("tree"), None, ["liu"]),
    ("join, all values fit", moderate("join"), None, ["keep-all", "join-dp", "dag-exact", "dag-auto"]),
    ("join, not all values fit", moderate("join"), 20, ["join-dp", "dag-exact", "dag-auto"]),
    ("dag, all values fit", DAG, None, ["keep-all", *LISTED]),
    ("dag, not all values fit", DAG, 40, LISTED),
    ("dag that can offload", DAG | {"machine": OFFLOADING}, 40, [*LISTED[:3], "dag-offload-best"]),
]


@pytest.mark.parametrize(("document", "budget", "names"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_auto_runs_the_expected_algorithms(document, budget, names):
    """Other algorithms may run, too; these must."""
    assert set(names) <= set(asked(document, budget))


def test_searches_that_take_long_run_only_within_a_limit_of_the_user():
    for document, name in (
        (moderate("chain") | {"machine": OFFLOADING}, "dag-offload-best"),
        (LONG | {"stages": LONG["stages"][:50]}, "hiremate"),
        (VERY_LONG, "dag-auto"),
    ):
        problem = make_problem(remat.load(document))
        run = [{one.algorithm.name for one in candidates(problem, timed=timed).asked} for timed in (True, False)]
        assert run[0] - run[1] == {name}


def test_tables_that_take_most_of_the_time_are_left_to_the_time_that_is_left():
    """They are those of `rotor` with variants, and of `join-dp`."""
    assert "rotor" not in asked(VARIANTS | {"stages": VARIANTS["stages"] * 300})
    chain = {"input_size": 1, "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 2}] * 1001}
    assert "join-dp" not in asked({"schema": "remat.instance/3", "kind": "join", "chains": [chain, chain]})


QUICK = ("revolve", "multistage", "two-level", "two-level-async", "periodic-disk-revolve", "treeverse", "recompute-all")


MANY = {**RAM, "slots": 20}
SSD, TAPE = SYNCHRONOUS | {"name": "ssd", "slots": 30}, SYNCHRONOUS | {"name": "tape"}
SLOWER_RAM = {**RAM, "channel": "pcie", "write_time": 1, "read_time": 1}


@pytest.mark.parametrize("working", [pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    ("steps", "levels"),
    [
        (2000, [MANY, SYNCHRONOUS]),
        (4000, [MANY, SSD, TAPE]),
        *[
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                (8000, [MANY, {**SYNCHRONOUS, "slots": 300}]),
                (30_000, [MANY, BESIDE]),
                (250, [RAM, BESIDE]),
                (250, [BESIDE]),
                (250, [SLOWER_RAM, BESIDE]),
                (12, [RAM, {**SSD, "slots": 3}, BESIDE]),
            ]
        ],
    ],
)
def test_no_quick_algorithm_is_better_for_equal_steps_with_storage(steps, levels, working):
    document = adjoint(steps, storage=levels, backward_time=2, units={"time": "unit", "memory": "unit"})
    found = remat.solve(document, budget={"working": working}).makespan
    for name in QUICK[:-1] if steps > 1000 else QUICK:
        try:
            other = remat.solve(document, algorithm=name, budget={"working": working}).makespan
        except remat.OptionError:
            continue
        assert other is None or found <= other, name


@pytest.mark.slow
def test_storage_beside_the_processor_is_no_worse_than_storage_that_occupies_it():
    ram, disk = {"name": "ram", "slots": 20}, {"name": "disk", "bandwidth": "2GB/s"}
    loop = adjoint(2000, forward_time=1, backward_time=2, state_size="1GiB", storage=[ram, disk])
    waits = remat.solve(loop)
    for working in ("2GiB", "3GiB"):
        beside = remat.solve(loop | {"storage": [ram, disk | {"channel": "dma"}]}, budget={"working": working})
        assert beside.makespan < waits.makespan
        assert beside.report.transferred["working->disk"] > 0
    assert beside.overhead == 0


def test_everything_declared_exists():
    known = {algorithm.name for algorithm in registry.algorithms()}
    for algorithm in registry.algorithms():
        assert set(algorithm.covered_by) <= known - {algorithm.name}
        for trial in algorithm.trials:
            assert set(trial.kinds) <= set(registry.KINDS)
            assert not trial.applies or callable(registry.load(trial.applies))
            assert bool(trial.applies) <= bool(trial.when)
            make_options(algorithm, trial.options)


def test_rotor_is_asked_first_about_many_budgets_of_a_chain():
    for document in (moderate("chain"), VARIANTS):
        assert selection.for_many(make_problem(remat.load(document), budget=40)).name == "rotor"
    assert selection.for_many(make_problem(remat.load(DAG), budget=40)) is None
    asked = remat.least_budget(moderate("chain"), max_overhead="20%", time_limit=20)
    alone = remat.least_budget(moderate("chain"), max_overhead="20%", algorithm="rotor")
    assert asked.answer.value <= alone.answer.value


def keep_all(problem, options, context):
    from remat_algorithms.dag.keep_all import solve

    return solve(problem, None, context)


def small(problem):
    return len(problem.graph.tasks) < 3


def entry(name, **more):
    return Algorithm(
        name=name, solver=f"{__name__}:keep_all", kinds=("taskgraph",), summary="", guarantee="heuristic", **more
    )


def test_an_algorithm_of_somebody_elses_is_asked(monkeypatch):
    """A line of metadata is all that it takes."""
    known = registry.algorithms("dag", available=True)
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: (*known, entry("mine")))
    assert "mine" in asked(DAG)


def test_trials_and_coverage_decide(monkeypatch):
    entries = (
        entry("covered", covered_by=("strong",)),
        entry("strong", trials=(Trial(early=True), Trial())),
        entry("for-small-ones", trials=(Trial(applies=f"{__name__}:small"),)),
        entry("for-trees", trials=(Trial(kinds=("tree",)),)),
        entry("never", trials=()),
    )
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: entries)
    chosen = candidates(make_problem(remat.load(DAG)))
    assert [candidate.algorithm.name for candidate in chosen.asked] == ["strong"]
    assert [candidate.algorithm.name for candidate in chosen.covered] == ["covered"]
    assert {candidate.algorithm.name for candidate in chosen.others} == {"for-small-ones", "for-trees", "never"}
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: entries[:1])
    assert asked(DAG) == ["covered"]


@pytest.mark.parametrize("budget", [None, 40, 1])
@pytest.mark.parametrize("document", [PARAMETERS, PARAMETERS | {"machine": OFFLOADING}, VARIANTS, adjoint(), DAG])
def test_whoever_does_not_know_an_instance_is_not_asked_about_many_budgets(document, budget):
    """A predicate may ask for what an instance does not have."""
    problem = make_problem(remat.load(document), budget=budget)
    entry = selection.for_many(problem)
    assert entry is None or entry.accepts(problem.kind)
    remat.solve(document, budget=budget, time_limit=0.5)


def test_chains_with_parameters_have_a_minimum_budget():
    found = remat.solve(PARAMETERS, budget=1, time_limit=1)
    assert found.least_budget.sufficient
    assert remat.solve(PARAMETERS, budget=found.least_budget.size, time_limit=1).columns is not None
