"""`checkmate` and `moccasin`: exhaustive search over their class, back ends, large numbers, limits, known values."""

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.plugin.context import Context
from remat.plugin.options import make_options
from remat.plugin.registry import find
from remat.schedule.document import Run
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from remat.testing.cases import moderate
from remat_algorithms.dag.order.window_search import better_order
from remat_algorithms.dag.programs import formulation, moccasin
from remat_algorithms.dag.programs.frontier import frontier as make_frontier
from remat_algorithms.dag.programs.greedy_start import greedy_schedule, runs_in_stages
from remat_algorithms.dag.programs.search import Search
from tests.algorithms.dag.programs.graphs import DOCUMENT, training_graphs
from tests.oracles import frontier, search
from tests.seeds import few

CLASS = "frontier-advancing schedules of the reference order"
SOLVERS = ("scip", "highs", "cp-sat", "pulp")


def draws(count):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def span(document):
    """Return the memory bound, and the need without recomputation."""
    keep = remat.solve(document, algorithm="keep-all")
    bound = keep.memory_bounds["memory"].size if keep.memory_bounds else 0
    return bound, keep.peak_memory["memory"]


def runs_of(result):
    return [step.task for step in result.steps if isinstance(step, Run)]


def reference_of(document):
    """Return the order in which every task runs once."""
    return runs_of(remat.solve(document, algorithm="keep-all"))


def budgets(document, share):
    bound, peak = span(document)
    return sorted({budget for budget in (bound + (peak - bound) * share // 100, peak - 1) if budget >= 0})


def one_memory(document):
    return "machine" not in document and not document.get("storage")


def check_optimal(document, share, name="checkmate", most_runs=None, **options):
    for budget in budgets(document, share):
        reference = reference_of(document)
        expected = frontier.best(document, budget, reference, most_runs)
        result = remat.solve(document, algorithm=name, budget=budget, options=options)
        assert frontier.is_best(result.makespan, runs_of(result), expected, reference), budget
        if expected is None:
            assert result.scope is not None
        else:
            assert result.optimal_within is not None


# --- the best of the class --------------------------------------------------------------------------------------------


@draws(15)
@given(training_graphs(), st.integers(0, 99))
def test_checkmate_is_optimal_on_training_graphs(document, share):
    check_optimal(document, share)


@draws(15)
@given(training_graphs(), st.integers(0, 99), st.integers(1, 3))
def test_moccasin_is_optimal_on_training_graphs(document, share, copies):
    check_optimal(document, share, "moccasin", copies, copies=copies)


LOWERED = {
    "chain": strategies.chains(largest=2, exact=True).filter(one_memory),
    "adjoint": strategies.adjoints(largest=3, exact=True)
    .filter(lambda document: one_memory(document) and "tape_size" not in document)
    .map(lambda document: {"forward_time": 1, "backward_time": 1, "state_size": 1} | document),
    "tree": strategies.trees(largest=4, exact=True).filter(one_memory),
    "dag": strategies.dags(largest=6, exact=True).filter(one_memory),
}


@pytest.mark.parametrize("kind", sorted(LOWERED))
def test_optimal_through_lowering(kind):
    @draws(2)
    @given(LOWERED[kind], st.integers(0, 99))
    def run(document, share):
        check_optimal(document, share)
        check_optimal(document, share, "moccasin", 2)

    run()


@pytest.mark.slow
@draws(300)
@given(st.one_of(training_graphs(), *LOWERED.values(), strategies.dags(largest=8, exact=True).filter(one_memory)))
def test_programs_are_optimal_at_several_budgets(document):
    for share in (0, 30, 60):
        check_optimal(document, share)
        check_optimal(document, share, "moccasin", 2)


@draws(15)
@given(strategies.chains(largest=3, plain=True, exact=True), st.integers(0, 99))
def test_not_behind_rotor_nor_ahead_of_all_schedules(document, share):
    """Persistent schedules of a chain advance the frontier."""
    for budget in budgets(document, share):
        result = remat.solve(document, algorithm="checkmate", budget=budget)
        persistent = remat.solve(document, algorithm="rotor", budget=budget).makespan
        best = search.chain_best(document, budget)
        if persistent is not None:
            assert result.makespan <= persistent
        if result.makespan is not None:
            assert result.makespan >= best


@draws(12)
@given(training_graphs(), st.integers(0, 99))
def test_more_memory_is_never_worse(document, share):
    bound, peak = span(document)
    for name in ("checkmate", "moccasin"):
        last = float("inf")
        for budget in sorted({bound, bound + (peak - bound) * share // 100, bound + (peak - bound) // 2, peak}):
            makespan = remat.solve(document, algorithm=name, budget=budget).makespan
            assert makespan is None if last is None else makespan is None or makespan <= last
            last = last if makespan is None else makespan


# --- rounding ---------------------------------------------------------------------------------------------------------


@draws(20)
@given(training_graphs(largest=6), st.integers(0, 99))
def test_rounding_is_between_bound_and_budget(document, share):
    for budget in budgets(document, share):
        best = remat.solve(document, algorithm="checkmate", budget=budget)
        rounded = remat.solve(document, algorithm="checkmate-lp", budget=budget)
        if best.makespan is None:
            assert rounded.makespan is None
            continue
        assert rounded.status != "infeasible"
        for bound in rounded.bounds:
            assert bound.value <= best.makespan
        if rounded.makespan is not None:
            assert rounded.makespan >= best.makespan
            assert rounded.peak_memory["memory"] <= budget


# --- solvers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rounding", [True, False])
def test_all_solvers_find_the_optimum_of_rotor(solver, rounding):
    document = moderate("chain") | {"stages": moderate("chain")["stages"][:6]}
    bound, peak = span(document)
    budget = (2 * bound + peak) // 3
    expected = remat.solve(document, algorithm="rotor", budget=budget)
    options = {"solver": solver, "rounding": rounding, "greedy": not rounding}
    result = remat.solve(document, algorithm="checkmate", budget=budget, options=options)
    assert result.optimal_within == CLASS
    assert result.makespan == remat.solve(document, algorithm="checkmate", budget=budget).makespan
    assert result.no_recompute_time < result.makespan <= expected.makespan


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_are_optimal_thoroughly(solver):
    @draws(40)
    @given(training_graphs(), st.integers(0, 99))
    def run(document, share):
        check_optimal(document, share, solver=solver)

    run()


@pytest.mark.parametrize("solver", ["highs", "glop", "pulp"])
def test_all_solvers_give_the_same_relaxation_bound(solver):
    document = moderate("chain") | {"stages": moderate("chain")["stages"][:6]}
    budget = sum(span(document)) // 2
    bounds = [
        remat.solve(document, algorithm="checkmate-lp", budget=budget, options={"solver": name}).bounds[0].value
        for name in (solver, "highs")
    ]
    assert bounds[0] == bounds[1]


@pytest.mark.parametrize("solver", ["pulp:NOSUCH", "pulp:CPLEX_CMD"])
def test_solver_that_pulp_lacks(solver):
    document = moderate("dag")
    budget = span(document)[1] - 1
    with pytest.raises(remat.OptionError, match="PuLP"):
        remat.solve(document, algorithm="checkmate", budget=budget, options={"solver": solver})


def test_an_unknown_solver_is_refused():
    with pytest.raises(remat.OptionError, match="solver"):
        remat.solve(moderate("dag"), algorithm="checkmate", options={"solver": "abacus"})


# --- large numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", few(4, 12))
@pytest.mark.parametrize("name", ["checkmate", "moccasin"])
def test_large_numbers_are_exact(name, count):
    """No common divisor, more digits than a floating-point solver sees; still exact."""

    @draws(count)
    @given(
        training_graphs(largest=4, size=st.integers(10**11, 10**12), time=st.integers(0, 10**13)),
        st.integers(0, 99),
    )
    def run(document, share):
        check_optimal(document, share, name, None if name == "checkmate" else 2)

    run()


def test_large_numbers_in_place():
    """Runs in place whose bytes are rounded: one byte is missing, and few cuts must do."""
    size, workspace = 10**11, 209_305_157_255
    tasks = [
        {"id": "f0", "time": 10**13, "size": size},
        {"id": "f1", "time": 0, "reads": ["f0"], "size": size, "workspace": workspace, "in_place": True},
        {"id": "f2", "time": 0, "reads": ["f1"], "size": size},
        {"id": "b2", "time": 0, "reads": ["f2", "f1"], "size": size},
        {"id": "b1", "time": 0, "reads": ["f1", "f0", "b2"], "size": size},
        {"id": "b0", "time": 0, "reads": ["f0", "b1"], "size": size},
    ]
    result = remat.solve(DOCUMENT | {"tasks": tasks}, algorithm="checkmate", budget=2 * size + workspace - 1)
    assert result.makespan == 2 * 10**13
    assert result.optimal_within == CLASS


def test_last_digits_of_times_decide():
    """Two reruns cost almost the same: the dearer one must not be taken for the cheaper one."""
    dear, cheap = 10**13 + 1, 10**13
    tasks = [
        {"id": "a", "time": dear, "size": 10},
        {"id": "b", "time": cheap, "size": 10},
        {"id": "both", "time": 0, "reads": ["a", "b"], "size": 0},
        {"id": "big", "time": 7, "workspace": 10, "size": 1},
        {"id": "last", "time": 3, "reads": ["a", "b", "big"], "size": 1},
    ]
    for name in ("checkmate", "moccasin"):
        result = remat.solve(DOCUMENT | {"tasks": tasks}, algorithm=name, budget=22)
        assert result.makespan == dear + 2 * cheap + 10
        assert result.optimal_within is not None


@pytest.mark.parametrize("name", ["checkmate", "moccasin"])
def test_last_byte_of_a_large_budget_decides(name):
    sizes = [10**12 + 1, 10**12 + 3, 10**12 + 7]
    tasks = []
    for i, size in enumerate(sizes):
        tasks.append({"id": f"f{i}", "time": i + 1, "size": size})
        tasks.append({"id": f"r{i}", "time": 0, "reads": [f"f{i}"], "size": 0})  # every result is used
    tasks.append({"id": "last", "time": 1, "reads": ["f0", "f2"], "size": 0})
    tasks.append({"id": "end", "time": 1, "reads": ["f0", "f1"], "size": 0})
    document = DOCUMENT | {"tasks": tasks}
    for budget in (sum(sizes), sum(sizes) - 1, sizes[0] + sizes[2], sizes[0] + sizes[2] - 1):
        expected = frontier.best(document, budget, reference_of(document), 2)
        assert remat.solve(document, algorithm=name, budget=budget).makespan == expected


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["checkmate", "checkmate-lp", "moccasin"])
def test_interrupted_while_the_solver_works(name):
    document = moderate("dag")
    problem = make_problem(remat.load(document), budget=sum(span(document)) // 2)
    entry = find(name, "dag")
    context = Context()
    timer = threading.Timer(0.7, lambda: setattr(context, "interrupted", True))
    timer.start()
    proposals = []
    thread = threading.Thread(
        target=lambda: proposals.append(entry.load()(problem, make_options(entry, {}), context)), daemon=True
    )
    thread.start()
    thread.join(60)
    timer.cancel()
    assert proposals, f"{name} is stuck"
    result = conclude(problem, entry, proposals[0], {})
    assert result.termination == "interrupted" or result.optimal_within or name == "checkmate-lp"


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_time_at_all(solver):
    document = moderate("chain")
    budget = sum(span(document)) // 2
    result = remat.solve(document, algorithm="checkmate", budget=budget, options={"solver": solver}, time_limit=0)
    assert result.status == "unknown"
    assert result.termination == "time limit"


# --- where it stops, and where it starts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("checkmate", "scip did not finish the program of"),
        ("checkmate-lp", "highs did not finish the program of"),
        ("moccasin", "cp-sat did not finish the program of"),
    ],
)
def test_what_was_not_finished_is_named(name, said, monkeypatch):
    from remat_algorithms.dag.programs import checkmate, moccasin
    from remat_algorithms.kit.programs.solver_status import Answer, Outcome

    unknown = Answer(Outcome.UNKNOWN)
    monkeypatch.setattr(checkmate, "solve_program", lambda *rest, **more: unknown)
    monkeypatch.setattr(moccasin, "watched", lambda *rest: unknown)
    document = moderate("dag")
    budget = sum(span(document)) // 2
    greedy = {} if name == "checkmate-lp" else {"options": {"greedy": False}}
    result = remat.solve(document, algorithm=name, budget=budget, **greedy)
    assert result.status == "unknown"
    assert any(note.startswith(said) for note in result.notes)


def test_programs_that_would_be_too_large_are_named(monkeypatch):
    monkeypatch.setattr(formulation, "MOST_ENTRIES", 100)
    document = moderate("dag")
    result = remat.solve(document, algorithm="checkmate", budget=sum(span(document)) // 2)
    assert result.status == "feasible"  # the greedy's
    assert result.optimal_within is None
    assert "more than 100 entries" in result.notes[0]
    assert result.termination == "size limit"


@pytest.mark.parametrize("name", ["checkmate", "moccasin"])
def test_what_is_proved_without_a_program_is_complete(name, monkeypatch):
    from remat_algorithms.dag.programs import moccasin

    monkeypatch.setattr(formulation, "MOST_ENTRIES", 100)
    monkeypatch.setattr(moccasin, "MOST_RUN_SLOTS", 1)
    document = moderate("dag")
    least, most = span(document)
    refused = remat.solve(document, algorithm=name, budget=least - 1)
    assert (refused.status, refused.scope, refused.termination) == ("infeasible", "all schedules", "completed")
    between = remat.solve(document, algorithm=name, budget=(least + most) // 2, options={"greedy": False})
    assert (between.status, between.termination) == ("unknown", "size limit")


@pytest.mark.parametrize("known", [True, False])
def test_a_schedule_of_too_many_runs_is_named(known, monkeypatch):
    from remat_algorithms.dag.programs import moccasin

    monkeypatch.setattr(moccasin, "SMALL", 0)
    document = moderate("dag")
    document |= {"tasks": document["tasks"][:16], "outputs": ["t15"]}
    least, most = span(document)
    budget = least + 3 * (most - least) // 4
    options = {"copies": 1, "rounding": False, "greedy": known}
    refused = remat.solve(document, algorithm="moccasin", budget=budget, options=options)
    assert refused.scope is not None
    said = "a schedule fits that runs a task 2 times, and 1 are allowed: use option copies=2"
    assert refused.notes.count(said) == known
    again = remat.solve(document, algorithm="moccasin", budget=budget, options=options | {"copies": 2})
    assert again.makespan is not None
    assert said not in again.notes


@draws(25)
@given(training_graphs(largest=6), st.integers(0, 99))
def test_the_greedy_starts_within_the_class(document, share):
    for budget in budgets(document, share):
        problem = make_problem(remat.load(document), budget=budget)
        search = Search(problem, Context(), CLASS, "test")
        greedy_schedule(search)
        if search.best is not None:
            best = remat.solve(document, algorithm="checkmate", budget=budget)
            assert search.best.peak <= budget
            assert search.best.makespan >= best.makespan


def test_runs_in_stages():
    """a b c a d: the second a stands in the stage of d; what may not run there is left out."""
    tasks = [
        {"id": name, "time": 1, "reads": reads, "size": 1} for name, reads in (("a", []), ("b", ["a"]), ("c", ["b"]))
    ]
    tasks.append({"id": "d", "time": 1, "reads": ["a", "c"], "size": 1})
    front = make_frontier(make_problem(remat.load(DOCUMENT | {"tasks": tasks})))
    assert runs_in_stages(front, [0, 1, 2, 0, 3]) == [(0, 0), (1, 1), (2, 2), (3, 0), (3, 3)]
    assert runs_in_stages(front, [0, 1, 2, 3, 0]) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert front.slots == sum(front.may_run(stage, task) for stage in range(4) for task in range(4))


# --- another order ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@draws(12)
@given(strategies.dags(largest=7, exact=True).filter(one_memory), st.integers(0, 99))
def test_an_improved_order_is_optimal_within_that_order(document, share):
    """The best within the improved order, where there is one."""
    for budget in budgets(document, share):
        problem = make_problem(remat.load(document), budget=budget)
        order = better_order(problem, "test", lambda: False)
        reference = reference_of(document) if order is None else [problem.graph.tasks[task] for task in order]
        for name, most in (("checkmate", None), ("moccasin", 2)):
            result = remat.solve(document, algorithm=name, budget=budget, options={"reorder": True})
            expected = frontier.best(document, budget, reference, most)
            assert frontier.is_best(result.makespan, runs_of(result), expected, reference)


def test_a_better_order_saves_reruns():
    """Two branches, side by side in the listed order, one after the other in the better one."""
    tasks = []
    for i in range(6):
        for branch in "ab":
            reads = [f"{branch}{i - 1}"] if i else []
            tasks.append({"id": f"{branch}{i}", "time": 5, "reads": reads, "size": 8 if i < 5 else 1})
            tasks.append({"id": f"r{branch}{i}", "time": 0, "reads": [f"{branch}{i}"], "size": 0})
    tasks.append({"id": "end", "time": 1, "reads": ["a5", "b5"], "size": 0})
    document = DOCUMENT | {"tasks": tasks}
    for name in ("checkmate", "checkmate-lp", "moccasin"):
        as_listed = remat.solve(document, algorithm=name, budget=17)
        better = remat.solve(document, algorithm=name, budget=17, options={"reorder": True})
        assert as_listed.makespan is None or as_listed.makespan > 61
        assert better.makespan == 61
        assert better.status == "optimal"


# --- known values -----------------------------------------------------------------------------------------------------

RATIOS = {
    ("vgg16", 0.873): 1.0197,
    ("vgg19", 0.828): 1.0268,
    ("unet", 0.849): 1.0148,
    ("unet", 0.70): 1.0297,
    ("unet", 0.65): 1.0366,
}


def known(graph, share, name):
    folder = os.environ.get("REMAT_DATA")
    if not folder:
        pytest.skip("REMAT_DATA is not set")
    path = Path(folder) / "dag" / "checkmate" / f"{graph}.json"
    document = json.loads(path.read_text())
    keep = remat.solve(document, algorithm="keep-all")
    budget = int(keep.peak_memory["memory"] * share)
    return remat.solve(document, algorithm=name, budget=budget), keep.makespan


@pytest.mark.parametrize("name", ["checkmate", "moccasin"])
def test_vgg16_equals_the_published_ratio(name):
    result, keep = known("vgg16", 0.873, name)
    assert result.optimal_within is not None
    assert round(result.makespan / keep, 4) == RATIOS["vgg16", 0.873]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkmate", "moccasin"])
@pytest.mark.parametrize(("graph", "share"), sorted(RATIOS))
def test_graphs_equal_the_published_ratios(graph, share, name):
    result, keep = known(graph, share, name)
    assert result.optimal_within is not None
    assert round(result.makespan / keep, 4) == RATIOS[graph, share]


def test_without_a_time_limit_the_constraint_program_takes_counted_work(monkeypatch):
    sizes = [3, 2, 2, 6, 3, 4, 3]
    times = [{"forward_time": 1 + k % 3, "backward_time": 2 + k % 4} for k in range(len(sizes))]
    steps = [{"state_size": size, **time} for size, time in zip(sizes, times, strict=True)]
    document = {"schema": "remat.instance/2", "kind": "adjoint", "steps": steps, "tape_size": 5, "tape_time": 4}
    monkeypatch.setattr(moccasin, "DEFAULT_WORK", 1e-6)
    asked = {"algorithm": "moccasin", "budget": 20, "options": {"greedy": False, "rounding": False}}
    counted = remat.solve(document, **asked)
    assert (counted.termination, counted.optimal_within) == ("iteration limit", None)
    assert "with a time limit the search continues" in " ".join(counted.notes)
    timed = remat.solve(document, **asked, time_limit=60)
    assert timed.termination == "completed"
