"""The fuzzing itself: it runs, it repeats, and it finds what is put into its way."""

import dataclasses
import json

import pytest

import remat
from remat.plugin import registry
from remat.plugin.context import Progress
from remat.plugin.proposal import Bound, LeastBudget, Status
from tests.fuzz import __main__ as fuzz
from tests.fuzz import cases, drawing, judging, shrinking, trial, truth, workers

CHAIN = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "input_size": 1,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 2, "saved_size": 1}] * 3,
}
BUDGET = 11  # the least is 10, keeping everything takes 14


def case(*names, budget=BUDGET, document=CHAIN):
    return cases.Case(0, document, tuple(cases.Solve(name, budget) for name in names))


def rules(findings):
    return {finding.rule for finding in findings}


def spoil(monkeypatch, algorithm, change):
    """Let every answer of an algorithm be changed before it is judged."""

    def solve(instance, **arguments):
        result = real(instance, **arguments)
        return change(result) if arguments["algorithm"] == algorithm else result

    real = remat.solve
    monkeypatch.setattr(remat, "solve", solve)


# --- it runs ----------------------------------------------------------------------------------------------------------


def test_a_dozen_solves(tmp_path, capsys):
    # Whether they find anything is for the slow test to say; this one is about the script.
    arguments = ["--solves", "12", "--jobs", "0", "--findings", str(tmp_path)]
    assert fuzz.main(arguments) in (0, 1)
    printed = capsys.readouterr().out
    assert "seed 0: cases from 0 on" in printed
    assert "findings of" in printed.splitlines()[-1]


@pytest.mark.slow
def test_two_thousand_solves(tmp_path, capsys):
    found = fuzz.main(["--solves", "2000", "--seed", "7", "--jobs", "1", "--findings", str(tmp_path)])
    assert not found, capsys.readouterr().out


@pytest.mark.slow
def test_what_auto_promises(tmp_path, capsys):
    found = fuzz.main(["--portfolio", "--cases", "150", "--seed", "7", "--jobs", "1", "--findings", str(tmp_path)])
    assert not found, capsys.readouterr().out


def test_a_seed_is_all_it_takes():
    assert cases.draw_case(17) == cases.draw_case(17)
    assert cases.draw_case(17) != cases.draw_case(18)


def test_all_kinds_and_machines_are_drawn():
    drawn = [drawing.document(seed) for seed in range(300)]
    assert {document["kind"] for document in drawn} == set(drawing.KINDS)
    machines = [document.get("machine", {}) for document in drawn]
    assert any(len(machine.get("memories", [])) == 3 for machine in machines)
    assert any("speed" in processor for machine in machines for processor in machine.get("processors", []))
    for key in ("storage", "tape_size", "in_place", "pinned_inputs", "parallel", "initial_state", "orientation"):
        assert any(key in document for document in drawn), key
    stages = [stage for document in drawn for stage in document.get("stages", [])]
    for key in ("variants", "parameter_size", "saving_workspace", "repeat", "backward_reads"):
        assert any(key in stage for stage in stages), key


def test_the_named_options_exist():
    for table in (cases.WORK, cases.DRAWN):
        for name, options in table.items():
            entry = next(entry for entry in registry.algorithms() if entry.name == name)
            assert set(options) <= set(entry.load_options().model_fields), name


ANYTIME = {entry.name for entry in registry.algorithms() if entry.anytime}


@pytest.mark.parametrize(
    "seeds", [range(33, 42), pytest.param(range(600), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_bounds_that_are_reported_hold_for_all_schedules(seeds):
    """What is reported as a bound over all schedules is one of the answer's, and no algorithm's schedule beats it."""
    told = set()
    for seed in seeds:
        answers, findings = trial.judge(cases.draw_case(f"anytime/{seed}").only(ANYTIME))
        assert not findings, (seed, findings)
        told |= {given.solve.algorithm for given in answers if given.found and given.result.history}
    assert len(told) > 5


# --- it finds ---------------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is_wrong():
    answers, findings = trial.judge(case("rotor", "keep-all", "chain-exact", "auto", "checkmate"))
    assert sum(given.found for given in answers) >= 3
    assert rules(findings) <= {"infeasible-in-a-class"}


def lower_bound(result, value):
    return dataclasses.replace(result, bounds=(*result.bounds, Bound(value, "all schedules", "a lie")))


def shifted(result):
    """The second half of the schedule a time unit early."""
    start = result.columns.start.copy()
    start[len(start) // 2 :] -= 1
    return dataclasses.replace(result, columns=result.columns.placed(start))


def nothing(result, scope="all schedules", least=None):
    bare = {"columns": None, "report": None, "optimal_within": None, "status": Status.INFEASIBLE}
    return dataclasses.replace(result, scope=scope, least_budget=least, **bare)


def too_good(result):
    return dataclasses.replace(result, status=Status.OPTIMAL, optimal_within="all schedules")


SPOILT = {
    "rejected": ("chain-exact", shifted),
    "bound-beaten": ("chain-exact", lambda result: lower_bound(result, result.makespan + 1)),
    "bound-beaten-by-search": (
        "chain-exact",
        lambda result: dataclasses.replace(lower_bound(result, 10**6), lower_bound=10**6),
    ),
    "status": ("chain-exact", lambda result: dataclasses.replace(result, status=Status.INFEASIBLE)),
    "own-bound": ("chain-exact", lambda result: dataclasses.replace(result, lower_bound=result.makespan + 1)),
    "optimal-beaten": ("recompute-all", too_good),
    "optimal-beaten-by-search": ("recompute-all", too_good),
    "infeasible-found": ("rotor", nothing),
    "infeasible-found-by-search": ("rotor", nothing),
    "infeasible-in-a-class": ("rotor", lambda result: nothing(result, "a class")),
    "least-is-not-enough": ("rotor", lambda result: nothing(result, least=LeastBudget(2, None, True))),
    "least-beaten": ("rotor", lambda result: nothing(result, least=LeastBudget(99, None, False, 0, "all schedules"))),
    "gap-taken-back": (
        "chain-exact",
        lambda result: dataclasses.replace(result, history=(Progress(0.1, None, result.lower_bound + 1, ""),)),
    ),
    "bound-is-no-time": ("chain-exact", lambda result: lower_bound(result, -1)),
}


@pytest.mark.parametrize("rule", SPOILT)
def test_a_lie_is_found(monkeypatch, rule):
    algorithm, change = SPOILT[rule]
    asked = case("chain-exact", "rotor", "recompute-all")
    assert rule not in rules(trial.judge(asked)[1])
    spoil(monkeypatch, algorithm, change)
    findings = trial.judge(asked)[1]
    assert (rule, algorithm) in {(finding.rule, finding.algorithm) for finding in findings}


def test_a_class_is_held_to_its_own(monkeypatch):
    other = "memory-persistent schedules"
    spoil(monkeypatch, "chain-exact", lambda result: dataclasses.replace(nothing(result, other)))
    assert "class-infeasible-found" in rules(trial.judge(case("rotor", "chain-exact"))[1])


def test_a_least_budget_that_is_not_the_least(monkeypatch):
    def change(result):
        least = result.least_budget
        return result if result.columns is not None else nothing(result, least=dataclasses.replace(least, size=40))

    asked = case("rotor", budget=7)
    assert "least-is-not-least" not in rules(trial.judge(asked)[1])
    spoil(monkeypatch, "rotor", change)
    assert "least-is-not-least" in rules(trial.judge(asked)[1])


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (remat.errors.ClaimError("no"), "claim"),
        (KeyError("x"), "exception"),
        (remat.errors.OptionError("use --budget"), "unclear-error"),
        (remat.errors.OptionError(""), "unclear-error"),
        (remat.errors.OptionError("two-level is not for this"), None),
    ],
)
def test_errors(monkeypatch, error, rule):
    def fail(instance, **arguments):
        raise error

    monkeypatch.setattr(remat, "solve", fail)
    assert rules(trial.judge(case("rotor"))[1]) == ({rule} - {None})


def test_an_answer_that_changes(monkeypatch):
    seeds = iter(range(9))
    spoil(monkeypatch, "rotor", lambda result: dataclasses.replace(result, seed=next(seeds)))
    asked = case("rotor")
    asked = dataclasses.replace(asked, solves=(dataclasses.replace(asked.solves[0], twice=True),))
    assert rules(trial.judge(asked)[1]) == {"not-the-same-twice"}


def test_whole_figures_are_compared_exactly():
    assert not judging.at_most(20000000011, 20000000010)
    assert not judging.at_most(20000000010.5, 20000000010)
    assert not judging.at_most(2.0**60 + 2**10, 2**60)
    assert judging.at_most(0.1 + 0.2, 0.3)


def test_bounds_and_optima_are_exact_but_for_what_adding_rounds_off():
    assert judging.may_stand_beside(7, 3, 7)
    assert not judging.may_stand_beside(2**60 + 1, 30, 2**60)
    assert judging.may_stand_beside(2.0**60 + 2**10, 8, 2**60)
    assert not judging.may_stand_beside(2.0**60 + 2**10, 3, 2**60)


def test_a_hang_is_a_finding():
    # No time at all: the process is ended before it has drawn the case.
    tally = next(iter(workers.farm([4], workers.Mode(), jobs=1, limit=0.0)))
    assert tally.findings[0].rule == "hangs"


def test_the_end_of_a_process_is_a_finding():
    worker = workers._Worker(workers.Mode())
    worker.process.kill()
    assert workers._heard(worker) == "ends-the-process (-9)"
    worker.end()


def test_auto_is_held_to_its_portfolio(monkeypatch):
    asked = case("auto", "chain-exact")
    look = workers.Mode(portfolio=True).judge
    assert not look(asked)[1]
    spoil(monkeypatch, "auto", nothing)
    assert rules(look(asked)[1]) == {"auto-finds-none"}


def test_auto_is_held_to_what_is_cheap_for_the_kind():
    answers, _ = workers.Mode(portfolio=True).judge(case("auto", "chen-greedy", "dag-list-memory"))
    assert [given.solve.algorithm for given in answers] == ["auto", "chen-greedy"]


# --- it repeats -------------------------------------------------------------------------------------------------------


def test_a_finding_is_written_judged_again_and_made_smaller(monkeypatch, tmp_path, capsys):
    spoil(monkeypatch, "keep-all", lambda result: lower_bound(result, -1))
    folder = tmp_path / "found"
    assert fuzz.main(["--only", "4", "--findings", str(folder)]) == 1
    path = next(folder.glob("bound-is-no-time-keep-all-4.json"))
    assert fuzz.main(["--again", str(path), "--shrink"]) == 1
    small = cases.Case.read(path.with_suffix(".small.json").read_text())
    assert len(json.dumps(small.document)) < len(json.dumps(cases.draw_case(4).document))
    assert [solve.algorithm for solve in small.solves] == ["keep-all"]
    monkeypatch.undo()
    assert fuzz.main(["--again", str(path)]) == 0
    assert "bound-is-no-time" in capsys.readouterr().out


def test_shrinking_stays_with_instances():
    asked, wanted = case("keep-all", budget=None), judging.Finding("found", "keep-all", "")

    def look(smaller):
        answers, _ = trial.judge(smaller)
        return answers, [wanted] if answers[0].found else []

    smallest, _ = shrinking.shrunk(asked, wanted.cause, look)
    assert len(smallest.document["stages"]) == 1
    remat.load(smallest.document)


def test_a_search_in_two_memories_counts_inputs_that_nobody_reads():
    machine = {"memories": [{"name": "device"}, {"name": "host"}], "processors": [{"name": "gpu", "memory": "device"}]}
    document = {"schema": "remat.instance/1", "kind": "dag", "machine": machine, "inputs": ["x"], "outputs": []}
    document |= {"values": [{"id": "x", "size": 3}], "tasks": [{"id": "t", "time": 1, "size": 1}]}
    assert truth._best(document, 2, 2) is None
    assert truth._best(document, 4, 2) == 1


def test_searches_are_for_tiny_instances_only():
    assert truth._tiny(CHAIN, 1)
    assert not truth._tiny(CHAIN | {"stages": CHAIN["stages"] * 2}, 1)
