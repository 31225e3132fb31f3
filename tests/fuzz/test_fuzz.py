"""Test the fuzzer: it runs, repeats, finds broken rules and reduces findings."""

import dataclasses
import json

import pytest

import remat
from remat.plugin import registry
from remat.plugin.context import Progress
from remat.plugin.proposal import Bound, LeastBudget, Status
from tests.fuzz import __main__ as fuzz
from tests.fuzz import (
    cases,
    classes,
    failures,
    forms,
    judging,
    options,
    own_peak,
    reduction,
    trial,
    truth,
    verdicts,
    workers,
)
from tests.fuzz.kinds.machines import memories_of, working_memory
from tests.oracles import parallel

CHAIN = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "input_size": 1,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 2, "saved_size": 1}] * 3,
}
BUDGET = 11  # the least is 10, keeping everything takes 14


def case(*names, budget=BUDGET, document=CHAIN):
    return cases.Case(0, json.loads(json.dumps(document)), tuple(cases.Solve(name, budget) for name in names))


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


def test_the_script_runs_a_few_solves(tmp_path, capsys):
    # Whether they find anything is for the slow test to say; this one is about the script.
    arguments = ["--form", "tree", "--solves", "2", "--jobs", "0", "--no-reduction", "--findings", str(tmp_path)]
    assert fuzz.main(arguments) in (0, 1)
    printed = capsys.readouterr().out
    assert "seed 0: cases from 0 on" in printed
    assert "findings of" in printed.splitlines()[-1]


@pytest.mark.slow
def test_two_thousand_solves_have_no_findings(tmp_path, capsys):
    found = fuzz.main(["--solves", "2000", "--seed", "7", "--jobs", "1", "--findings", str(tmp_path)])
    assert not found, capsys.readouterr().out


def test_a_seed_is_all_it_takes():
    assert cases.draw_case(17) == cases.draw_case(17)
    assert cases.draw_case(17) != cases.draw_case(18)


@pytest.fixture(scope="module")
def drawn():
    return [forms.document(seed)[0] for seed in range(1200)]


def test_all_kinds_and_machines_are_drawn(drawn):
    assert {document["kind"] for document in drawn} == set(forms.KINDS)
    machines = [document.get("machine", {}) for document in drawn]
    assert any(len(machine.get("memories", [])) == 3 for machine in machines)
    assert any("speed" in processor for machine in machines for processor in machine.get("processors", []))
    assert any(working_memory(document) not in (None, memories_of(document)[0]) for document in drawn)
    keys = {key for document in drawn for key in document}
    assert keys >= {"storage", "tape_size", "in_place", "pinned_inputs", "parallel", "initial_state", "orientation"}
    assert keys >= {
        "stream",
        "staleness",
        "sharding",
        "optimizer_memory",
        "exchange",
        "copies",
        "tokens",
        "update_every",
    }
    stages = {key for document in drawn for stage in document.get("stages", []) for key in stage}
    assert stages >= {"variants", "parameter_size", "saving_workspace", "repeat", "backward_reads", "update_time"}
    modes = {document["cluster"].get("transfers") for document in drawn if "cluster" in document}
    assert modes >= {"overlap", "blocking", "rendezvous", "grouped"}


def test_figures_of_all_magnitudes_are_drawn(drawn):
    times = [task["time"] for document in drawn for task in document.get("tasks", []) if "time" in task]
    times = [time for time in times if not isinstance(time, dict)]
    assert any(time == 0 for time in times)
    assert any(isinstance(time, int) and time > 2**59 for time in times)
    assert any("e-" in json.dumps(document) for document in drawn)


def test_an_instance_is_drawn_for_each_algorithm():
    """Algorithms that most forms have nothing for are named in the table of forms that are drawn for them."""
    names = {entry.name for kind in forms.KINDS for entry in registry.algorithms(kind)}
    for form, listed in forms.DRAWN_FOR.items():
        assert set(listed) <= names, form
    for name in names:
        assert cases.forms_for([name]), name


def test_a_case_can_be_drawn_for_one_algorithm():
    case = cases.draw_case(5, among=["zb-h1"])
    assert {solve.algorithm for solve in case.solves} <= {"zb-h1"}
    assert case.form == "split-pipeline"


def test_the_named_options_exist():
    for table in (options.WORK, options.CHOICES):
        for name, chosen in table.items():
            entry = next(entry for entry in registry.algorithms() if entry.name == name)
            assert set(chosen) <= set(entry.load_options().model_fields), name


ANYTIME = {entry.name for entry in registry.algorithms() if entry.anytime}


@pytest.mark.parametrize(
    "seeds", [range(33, 36), pytest.param(range(600), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_bounds_that_are_reported_hold_for_all_schedules(seeds):
    """Every reported bound over all schedules is in the answer, and no algorithm's schedule beats it."""
    told = set()
    for seed in seeds:
        answers, findings = trial.judge(cases.draw_case(f"anytime/{seed}").only(ANYTIME), focus="")
        assert not findings, (seed, findings)
        told |= {given.solve.algorithm for given in answers if given.found and given.result.history}
    assert len(told) > 2


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
    "minimum-not-enough": ("rotor", lambda result: nothing(result, least=LeastBudget(2, None, True))),
    "minimum-beaten": ("rotor", lambda result: nothing(result, least=LeastBudget(99, None, False, 0, "all schedules"))),
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
    assert "minimum-not-minimal" not in rules(trial.judge(asked)[1])
    spoil(monkeypatch, "rotor", change)
    assert "minimum-not-minimal" in rules(trial.judge(asked)[1])


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
def test_unexpected_errors_are_findings(monkeypatch, error, rule):
    def fail(instance, **arguments):
        raise error

    monkeypatch.setattr(remat, "solve", fail)
    assert rules(trial.judge(case("rotor"))[1]) == ({rule} - {None})


def test_an_answer_that_changes(monkeypatch):
    seeds = iter(range(9))
    spoil(monkeypatch, "rotor", lambda result: dataclasses.replace(result, seed=next(seeds)))
    asked = case("rotor")
    asked = dataclasses.replace(asked, solves=(dataclasses.replace(asked.solves[0], twice=True),))
    assert rules(trial.judge(asked, focus="")[1]) == {"not-the-same-twice"}


def test_whole_figures_are_compared_exactly():
    assert not verdicts.at_most(20000000011, 20000000010)
    assert not verdicts.at_most(20000000010.5, 20000000010)
    assert not verdicts.at_most(2.0**60 + 2**10, 2**60)
    assert verdicts.at_most(0.1 + 0.2, 0.3)
    assert verdicts.at_most(float(2**62 + 700), 2**62 + 600)  # the nearest float of a sum that leaves int64
    assert verdicts.at_most(2.0**54 + 8, 2**54 + 6)  # the same, of a sum with a fraction
    assert not verdicts.at_most(2.0**54 + 8, 2**54 + 5)
    assert not verdicts.at_most(2**62 + 1025, 2**62 + 1024)


def test_bounds_and_optima_are_exact_but_for_what_adding_rounds_off():
    assert verdicts.may_stand_beside(7, 3, 7)
    assert not verdicts.may_stand_beside(2**60 + 1, 30, 2**60)
    assert verdicts.may_stand_beside(2.0**60 + 2**10, 8, 2**60)
    assert not verdicts.may_stand_beside(2.0**60 + 2**10, 3, 2**60)


def test_a_hang_is_a_finding():
    # No time at all: the watchdog ends the process before it has drawn the case.
    tally = next(iter(workers.farm([4], workers.Mode(), jobs=1, limit=0.0)))
    assert tally.findings[0][0].rule == "hangs"


def test_the_end_of_a_process_is_a_finding():
    worker = workers._Worker(workers.Mode())
    worker.process.kill()
    assert workers._heard(worker) == "ends-the-process (-9)"
    worker.end()


def test_auto_finds_a_schedule_where_another_algorithm_does(monkeypatch):
    asked = case("auto", "chain-exact")
    assert not trial.judge(asked, focus="")[1]
    spoil(monkeypatch, "auto", lambda result: dataclasses.replace(nothing(result, None), status=Status.UNKNOWN))
    assert "auto-finds-none" in rules(trial.judge(asked, focus="")[1])


def test_the_peak_of_a_schedule_is_a_budget(monkeypatch):
    def reserves(result):
        return nothing(result, None) if result.machine.memories[0].capacity == peak else result

    asked = case("chain-exact", budget=None)
    peak = remat.solve(CHAIN, algorithm="chain-exact").peak_memory["memory"]
    assert not trial.judge(asked, focus=own_peak.RULE)[1]
    spoil(monkeypatch, "chain-exact", reserves)
    assert own_peak.RULE in rules(trial.judge(asked, focus=own_peak.RULE)[1])


def test_auto_is_no_worse_than_cheap_algorithms(monkeypatch):
    def slower(result):
        return dataclasses.replace(result, report=dataclasses.replace(result.report, makespan=10**6))

    asked = case("auto", "chen-greedy")
    assert not trial.judge(asked, focus="")[1]
    spoil(monkeypatch, "auto", slower)
    assert "auto-beaten" in rules(trial.judge(asked, focus="")[1])


def test_more_memory_is_never_worse(monkeypatch):
    def change(result):
        bare = result.machine.memories[0].capacity == 14
        return nothing(result, None) if bare else result

    asked = dataclasses.replace(case("auto"), solves=(cases.Solve("auto", 12), cases.Solve("auto", 14)))
    assert not trial.judge(asked, focus="")[1]
    spoil(monkeypatch, "auto", change)
    assert "worse-with-more-memory" in rules(trial.judge(asked, focus="")[1])


def test_a_failing_member_of_auto_is_found(monkeypatch):
    spoil(monkeypatch, "auto", lambda result: dataclasses.replace(result, log=("bug: rotor failed: KeyError: 3",)))
    assert "member-failed" in rules(trial.judge(case("auto"), focus="")[1])


def test_optimal_needs_a_bound_that_the_makespan_meets(monkeypatch):
    spoil(monkeypatch, "auto", lambda result: dataclasses.replace(result, lower_bound=result.lower_bound - 1))
    assert "optimal-above-bound" in rules(trial.judge(case("auto"), focus="")[1])


@pytest.mark.parametrize("name", ["rename_all", "scale_times", "add_unused_memory"])
def test_answers_that_depend_on_how_the_instance_is_written(monkeypatch, name):
    machine = {"memories": [{"name": "device"}, {"name": "host"}], "processors": [{"name": "p", "memory": "device"}]}
    asked = case("keep-all", budget={"device": 14}, document=CHAIN | {"machine": machine})
    first = []

    def change(result):
        first.append(result)
        return result if len(first) == 1 else nothing(result)

    spoil(monkeypatch, "keep-all", change)
    found = rules(trial.judge(asked, focus=f"not-the-same-{name}")[1])
    assert f"not-the-same-{name}" in found


def test_a_class_is_searched(monkeypatch):
    asked = case("rotor", budget=12)
    assert not trial.judge(asked, focus="")[1]
    name = "memory-persistent schedules"
    spoil(monkeypatch, "rotor", lambda result: nothing(result, name))
    assert "class-infeasible-found-by-search" in rules(trial.judge(asked, focus="")[1])


def test_a_class_that_the_metadata_does_not_name(monkeypatch):
    spoil(monkeypatch, "rotor", lambda result: nothing(result, "some class"))
    assert "class-not-in-metadata" in rules(trial.judge(case("rotor"), focus="")[1])


def test_exit_codes_are_compared_with_answers(monkeypatch):
    asked = case("keep-all", "rotor")
    assert not trial.judge(asked, focus="command-line")[1]
    spoil(monkeypatch, "rotor", lambda result: dataclasses.replace(nothing(result, None), status=Status.UNKNOWN))
    spoil(monkeypatch, "keep-all", lambda result: dataclasses.replace(nothing(result, None), status=Status.UNKNOWN))
    asked = dataclasses.replace(asked, solves=asked.solves[:1])
    monkeypatch.setattr("tests.fuzz.command_line.main", lambda arguments: 0)
    assert "command-line" in rules(trial.judge(asked, focus="command-line")[1])


# --- it repeats -------------------------------------------------------------------------------------------------------


def test_a_failure_is_reduced_written_and_judged_again(monkeypatch, tmp_path, capsys):
    spoil(monkeypatch, "keep-all", lambda result: lower_bound(result, -1))
    folder = tmp_path / "found"
    assert fuzz.main(["--only", "1", "--form", "dag", "--algorithm", "keep-all", "--findings", str(folder)]) == 1
    path = next(folder.glob("bound-is-no-time-keep-all-1.json"))
    text = path.read_text(encoding="utf-8")
    small, _ = failures.read_failure(text)
    assert len(json.dumps(small.document)) < len(json.dumps(cases.draw_case(1, "dag").document))
    assert [solve.algorithm for solve in small.solves] == ["keep-all"]
    assert json.loads(text).keys() >= {"instance", "algorithm", "budget", "seen", "rule", "seed"}
    assert fuzz.main(["--again", str(path)]) == 1
    monkeypatch.undo()
    assert fuzz.main(["--again", str(path)]) == 0
    assert "bound-is-no-time" in capsys.readouterr().out


def test_a_reduction_stays_with_instances():
    asked, wanted = case("keep-all", budget=None), verdicts.Finding("found", "keep-all", "")

    def look(smaller, focus):
        answers, _ = trial.judge(smaller, focus=focus)
        return answers, [wanted] if answers[0].found else []

    smallest, _ = reduction.reduced(asked, wanted, look)
    assert len(smallest.document["stages"]) == 1
    remat.load(smallest.document)


# --- exhaustive searches ----------------------------------------------------------------------------------------------


def test_a_search_in_two_memories_counts_inputs_that_nobody_reads():
    machine = {"memories": [{"name": "device"}, {"name": "host"}], "processors": [{"name": "gpu", "memory": "device"}]}
    document = {"schema": "remat.instance/1", "kind": "dag", "machine": machine, "inputs": ["x"], "outputs": []}
    document |= {"values": [{"id": "x", "size": 3}], "tasks": [{"id": "t", "time": 1, "size": 1}]}
    search = truth._searched_by(document)
    assert search(document, 2) is None
    assert search(document, 4) == 1


def test_searches_are_for_tiny_instances_only():
    assert truth._searched_by(CHAIN)
    assert not truth._searched_by(CHAIN | {"stages": CHAIN["stages"] * 2})
    assert classes.in_one_memory(CHAIN)


def _tasks(count, budget, *, outputs=True):
    """Independent tasks of 1 to `count` time units, which write 1 byte each, on two processors, one at half speed."""
    processors = [{"name": "p", "memory": "m"}, {"name": "q", "memory": "m", "speed": 0.5}]
    tasks = [{"id": f"t{k}", "time": k, "size": 1} for k in range(1, count + 1)]
    document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "inputs": []}
    document["machine"] = {"memories": [{"name": "m", "capacity": budget}], "processors": processors}
    return document | {"outputs": [f"t{k}" for k in range(1, count + 1)] if outputs else []}


def test_the_search_on_several_processors():
    # 4 and 2 on the quick processor, 3 on the slow one; or 4, 3 and 1 and 2: 6 or 8.
    assert parallel.least_makespan(_tasks(3, None)) == 4
    assert parallel.least_makespan(_tasks(4, None)) == 7
    # One byte: the tasks follow each other on the quick processor, and drop what they write.
    assert parallel.least_makespan(_tasks(4, 1, outputs=False)) == 10
    assert parallel.least_makespan(_tasks(4, 3)) == float("inf")


def test_the_search_on_several_processors_knows_links():
    document = {"schema": "remat.instance/2", "kind": "dag", "inputs": ["x"], "outputs": ["b"]}
    document["values"] = [{"id": "x", "size": 4}, {"id": "a", "size": 2}, {"id": "b", "size": 1}]
    document["tasks"] = [
        {"id": "t0", "time": 3, "reads": ["x"], "writes": ["a"]},
        {"id": "t1", "time": 5, "reads": ["x", "a"], "writes": ["b"]},
    ]
    document["machine"] = {
        "memories": [{"name": "m"}, {"name": "n"}],
        "processors": [{"name": "p", "memory": "m", "speed": 1}, {"name": "q", "memory": "n"}],
        "links": [{"source": "m", "target": "n", "bandwidth": 2}, {"source": "n", "target": "m"}],
    }
    assert parallel.least_makespan(document) == 8
    document["tasks"][1]["on"] = ["q"]
    document["schema"] = "remat.instance/3"
    # x crosses in 2 while t0 runs, a in 1 after it, b comes back at once.
    assert parallel.least_makespan(document) == 9


def test_whole_figures_are_whole():
    assert judging._same(5, 5)
    assert not judging._same(5.0, 5)
    assert judging._same(5.0, 5, exact=False)
    assert not judging._same({"gpu": 5.0}, {"gpu": 5})
    assert judging._same(0.1 + 0.2, 0.3)
