"""Test all algorithms on drawn instances: only library exceptions, no warnings, consistent claims.

`tests/algorithms/drawing.py` draws what the algorithms may not know. Each answers, or refuses in one line, and no claim
over all schedules is refuted by what another algorithm finds on the same instance with the same budgets.
"""

import copy
import warnings

import pytest

import remat
from remat.plugin import registry
from remat.solving.problem_setup import make_problem
from tests.algorithms import drawing
from tests.fuzz.cases import WORK
from tests.seeds import few

FOLDERS = ("adjoint", "chain", "dag", "offload", "tree")
JOINT = ("adjoint-best", "dag-offload-best", "remat-offload-best", "dag-list-memory")
KINDS = ("chain", "dag", "adjoint", "tree", "join")
LITTLE = WORK | {"dag-offload-best": {"iterations": 20}, "chain-best": {"iterations": 5, "states": 500}}
LINE = 300
"""Characters of a refusal, at most."""

LONG = {"poet", "moccasin", "checkmate", "checkmate-lp", "offload-exact", *JOINT}
"""Slow algorithms; the fast test runs one in four of them."""


def entries(kind):
    """Return the algorithms of the folders that take a kind."""
    return [
        entry
        for entry in registry.algorithms(available=True)
        if entry.accepts(kind) and (entry.name in JOINT or entry.solver.split(".")[1] in FOLDERS)
    ]


def answer(document, name, budget):
    """Return an algorithm's result, or None if it refuses the instance in one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
            given = LITTLE.get(name, {})
            return remat.solve(copy.deepcopy(document), algorithm=name, budget=budget, options=given, time_limit=30)
    except remat.RematError as error:
        refusal = str(error)
    assert len(refusal) <= LINE, (name, refusal)
    assert "\n" not in refusal, (name, refusal)
    return None


def refuted(problem, answers):
    """Yield the claims over all schedules that a schedule among the answers refutes."""
    found = [(result.makespan, name) for name, result in answers if result.columns is not None]
    if not found:
        return
    if problem.unreachable is not None:
        yield f"{problem.unreachable}, and {found[0][1]} has a schedule"
    best, author = min(found)
    for name, result in answers:
        rounded = float in {type(best), type(result.lower_bound), type(result.makespan)}
        most = best * (1 + 1e-9) if rounded else best
        if result.status == "infeasible":
            yield f"{name} says infeasible, {author} has {best}"
        elif result.lower_bound > most:
            yield f"{name} has the bound {result.lower_bound}, {author} the schedule {best}"
        elif result.status == "optimal" and result.makespan > most:
            yield f"{name} says that {result.makespan} is optimal, {author} has {best}"


def judge(kind, seed, *, every=True):
    """Draw an instance and budgets, ask the algorithms, and return the claims that are refuted."""
    name = f"{kind}/{seed}"
    document = drawing.document(name, (kind,))
    try:
        problem = make_problem(remat.load(copy.deepcopy(document)))
    except remat.InstanceError:
        return None  # some task can never run
    draw = drawing.Draw(f"{name}/budgets")
    keep = answer(document, "keep-all", None)
    working = problem.machine.memories[problem.machine.processors[0].memory].name
    peak = None if keep is None or keep.columns is None else keep.peak_memory[working]
    wrong = []
    for budget in drawing.budgets(draw, problem, peak):
        asked = [entry.name for entry in entries(kind) if every or entry.name not in LONG or draw.chance(4)]
        results = [(each, answer(document, each, budget)) for each in asked]
        answers = [(each, result) for each, result in results if result is not None]
        wrong += [f"{name} at {budget}: {claim}" for claim in refuted(problem, answers)]
    return wrong


@pytest.mark.parametrize("drawn", few(range(2), range(2, 4)), ids=len)
@pytest.mark.parametrize("kind", KINDS)
def test_claims_hold_on_a_few_drawn_instances(kind, drawn):
    for seed in drawn:
        assert not judge(kind, seed, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_claims_hold_on_many_drawn_instances(kind, part):
    judged = [judge(kind, seed) for seed in range(100 + 20 * part, 120 + 20 * part)]
    assert not [claim for wrong in judged for claim in wrong or ()]
    assert sum(wrong is not None for wrong in judged) > len(judged) / 2
