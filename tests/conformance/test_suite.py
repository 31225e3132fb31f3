"""The suite itself: each defect is found by the test that is there for it, and sound algorithms pass."""

import io
import json
from functools import cache

import pytest
from hypothesis import strategies as st

from remat.errors import OptionError
from remat.plugin import registry
from remat.testing import AlgorithmSuite, reproducibility_worker
from remat.testing.cases import degenerate, moderate
from tests.conformance import fakes


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", lambda: fakes.FAKES)


class OnCases(AlgorithmSuite):
    """Draws from the degenerate cases: fast, and enough to see a defect."""

    def instances(self, kind):
        return st.sampled_from(list(degenerate(kind).values()))


def suite(name, base=OnCases, **more):
    return type("Suite", (base,), {"algorithm": name, "examples": 15, **more})()


@cache
def sound(name):
    """All of the suite, whose tests share their answers."""
    return type("Suite", (AlgorithmSuite,), {"algorithm": name, "examples": 3})()


def run(name, test, *arguments, **more):
    getattr(suite(name, **more), test)(*arguments)


FOUND = [
    ("wrong-makespan", "test_schedules_are_valid", "claims makespan"),
    ("wrong-peak", "test_schedules_are_valid", "claims peak"),
    ("false-bound", "test_schedules_are_valid", "claims bound"),
    ("nameless-bound", "test_schedules_are_valid", "lacks its scope"),
    ("missing-step", "test_schedules_are_valid", "verifier rejects"),
    ("raises", "test_schedules_are_valid", "out of memory"),
    ("refuses-budgets", "test_schedules_are_valid", "refused at others"),
    ("refuses-all", "test_instances_are_accepted", "no dag instance was solved.*on strike"),
    ("refuses-mutely", "test_instances_are_accepted", "a refusal says why"),
    ("wasteful", "test_more_memory_never_hurts", "a longer schedule|beats an optimal one"),
    ("gives-up", "test_more_memory_never_hurts", "despite a proof of infeasibility"),
    ("fickle", "test_more_memory_never_hurts", "a strategy builds one schedule"),
    ("slower-prepared", "test_prepared_answers_are_as_good", "prepared, budget .* takes"),
    ("reserves", "test_own_peak_is_enough", "the peak of its own schedule is not enough"),
    ("too-little", "test_least_budgets_are_least", "reported to be enough|minimum budget is given as"),
    ("too-much", "test_least_budgets_are_least", "one byte less is enough"),
    ("least-is-no-more", "test_least_budgets_are_least", "minimum budget is given as"),
    ("unseeded", "test_same_seed_same_schedule", "with the same seed differs"),
    ("changes-times", "test_problem_is_left_alone", r"changed problem\[0\].graph.time"),
    ("returns-none", "test_problem_is_left_alone", "returned null, and no Proposal"),
    ("hides-interruption", "test_stops_when_asked", "is reported as time limit"),
    ("reports-nonsense", "test_incumbents_are_schedules", "verifier rejects"),
]


@pytest.mark.parametrize(("name", "test", "message"), FOUND, ids=[name for name, _, _ in FOUND])
def test_defects_are_found(name, test, message):
    with pytest.raises((AssertionError, RuntimeError, AttributeError), match=message):
        run(name, test, "dag", {})


def test_a_sparing_suite_solves_less_and_finds_as_much(monkeypatch):
    solves = []
    for sparing in (False, True):
        one = suite("sound", sparing=sparing)
        one.test_degenerate_instances("dag", {})
        monkeypatch.setattr(
            "remat.testing.suite.answer_elsewhere",
            lambda trials, asked, given: solves.append(len(asked)) or ["{}"] * len(asked),
        )
        with pytest.raises(AssertionError, match="answers differently"):
            one.test_same_schedule_in_another_process({})
        solves.append(len(one._trials._answers))
    (elsewhere, here), (less_elsewhere, less_here) = solves[:2], solves[2:]
    assert elsewhere > 2 * less_elsewhere > 0
    assert here > less_here > 0
    for name, message in (
        ("wrong-makespan", "claims makespan"),
        ("wasteful", "a longer schedule|beats an optimal one"),
    ):
        with pytest.raises((AssertionError, RuntimeError), match=message):
            run(name, "test_degenerate_instances", "dag", {}, sparing=True)


def test_changes_of_a_chain_are_found():
    with pytest.raises(AssertionError, match=r"graph.time|chain.forward_time"):
        run("changes-chain", "test_problem_is_left_alone", "chain", {})


def test_a_solver_that_never_stops_is_given_up():
    fakes.FINISH.set()
    patient = suite("never-stops", patience=0.2)
    patient._trials.solve(moderate("dag"), {}, budgets=patient._trials.middle(moderate("dag"), {}))
    fakes.FINISH.clear()
    with pytest.raises(AssertionError, match=r"still runs 0\.2 s after"):
        patient.test_stops_when_asked("dag", {})
    fakes.FINISH.set()


METADATA = [
    ("Bad_Name", "small-letters"),
    ("silent", "summary"),
    ("no-kinds", "no kinds"),
    ("odd-kinds", "unknown kinds"),
    ("nowhere", "nothing_of_this_name"),
]


@pytest.mark.parametrize(("name", "message"), METADATA)
def test_incomplete_metadata_is_found(name, message):
    with pytest.raises((AssertionError, AttributeError), match=message):
        run(name, "test_metadata_is_complete")


def test_poor_options_are_found():
    with pytest.raises(AssertionError, match="'rounds' has no description"):
        run("undescribed", "test_options_are_documented")
    with pytest.raises(AssertionError, match="derive from"):
        run("loose", "test_options_are_documented")
    with pytest.raises(OptionError, match="rounds"):
        run("stepwise", "test_options_are_documented", options=({"rounds": "many"},))


def test_unknown_and_unavailable_algorithms():
    with pytest.raises(OptionError, match="did you mean 'sound'"):
        run("sounds", "test_metadata_is_complete")
    with pytest.raises(pytest.skip.Exception, match="a_module_that_nobody_has"):
        run("needs-more", "test_metadata_is_complete")


@pytest.mark.parametrize("name", ["sound", "stepwise"])
@pytest.mark.parametrize(
    "test",
    [name for name in vars(AlgorithmSuite) if name.startswith("test_") and "process" not in name],
)
def test_sound_algorithms_pass(name, test):
    arguments = {
        "test_metadata_is_complete": [()],
        "test_options_are_documented": [()],
        "test_other_kinds_are_refused": [()],
        "test_degenerate_instances": [("dag", {})],
    }
    for given in arguments.get(test, [(kind, {}) for kind in ("chain", "adjoint", "dag", "tree")]):
        getattr(sound(name), test)(*given)


def test_another_process_with_other_answers_is_found(monkeypatch):
    monkeypatch.setattr("remat.testing.suite.answer_elsewhere", lambda trials, cases, given: ["{}"] * len(cases))
    with pytest.raises(AssertionError, match=r"another process answers differently .*: budget"):
        run("sound", "test_same_schedule_in_another_process", {})


def test_another_process_that_fails_is_found():
    # It knows the installed algorithms only, not the ones registered here.
    with pytest.raises(AssertionError, match=r"another process (answers differently|fails)"):
        run("sound", "test_same_schedule_in_another_process", {})


def test_the_worker_replays_cases(monkeypatch, capsys):
    def case(**more):
        usual = {"algorithm": "sound", "budget": {"memory": 100}, "options": {}, "seed": 0, "time_limit": None}
        return {"document": degenerate("tree")["star"], **usual, **more}

    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps([case(), case(algorithm="refuses-all")])))
    reproducibility_worker.main()
    solved, refused = json.loads(capsys.readouterr().out)
    assert json.loads(solved)["makespan"] == 5
    assert "solve_seconds" not in solved
    assert refused == "refused: this algorithm is on strike"


def test_cases_are_instances():
    import remat

    for kind in registry.KINDS:
        for name, document in {**degenerate(kind), "moderate": moderate(kind)}.items():
            assert remat.load(document).kind == kind, name


def test_strategies_and_cases_know_the_kinds():
    from remat.testing.strategies import documents

    for wrong in (documents, moderate):
        with pytest.raises(ValueError, match="no kind 'sudoku'"):
            wrong("sudoku")
