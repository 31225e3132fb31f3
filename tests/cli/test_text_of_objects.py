"""Test the text of public objects: what the command prints, and no arrays."""

import numpy as np
import pytest

import remat
from remat.instance import save_instance
from remat.verifier import check

CHAIN = remat.chain(
    forward_time=[3, 1, 2], backward_time=2, output_size=[40, 30, 20], input_size=20, names=["a", "b", "c"]
)


def test_a_report_prints_as_the_command_does(run, tmp_path):
    result = remat.solve(CHAIN, algorithm="keep-all")
    save_instance(CHAIN, tmp_path / "net.json")
    result.save(tmp_path / "plan.json")
    printed = run("verify", str(tmp_path / "net.json"), str(tmp_path / "plan.json")).out
    report = remat.verify(CHAIN, result)
    assert str(report) + "\n" == printed
    assert str(result.report) + "\n" == printed
    assert printed.startswith("verdict ")


def test_a_report_of_the_verifier_alone_names_steps_by_number():
    result = remat.solve(CHAIN, algorithm="keep-all")
    alone = check(result.graph, result.machine, result.columns)
    assert (alone.subject, alone.makespan) == (None, result.makespan)
    step = alone.peaks["memory"].step
    assert f"set by step {step}" in str(alone)


def test_violations_are_in_the_text():
    report = remat.verify(CHAIN, [{"run": "B1"}])
    assert not report.ok
    assert str(report.violations[0]) in " ".join(str(report).split())


def test_facts_print_as_the_command_does(run, tmp_path):
    save_instance(CHAIN, tmp_path / "net.json")
    assert str(remat.show(CHAIN)) + "\n" == run("show", str(tmp_path / "net.json")).out


def objects():
    """Public objects that hold arrays, or other objects that do."""
    long = remat.chain(forward_time=[1, 2] * 30, backward_time=1, output_size=4, input_size=4)
    result = remat.solve(long, budget=60, algorithm="rotor")
    assert isinstance(result.report.start, np.ndarray)
    sweep = remat.sweep(long, budgets=[60, 80], algorithms=["rotor"])
    return {
        "result": result,
        "report": result.report,
        "profile": result.report.profiles["memory"],
        "steps": result.steps,
        "columns": result.columns,
        "graph": result.graph,
        "machine": result.machine,
        "decisions": result.decisions,
        "stages": result.stage_decisions,
        "decision": result.decisions[0],
        "facts": remat.show(long),
        "addresses": remat.layout(result),
        "sweep": sweep,
        "curve": sweep.curves[0],
        "point": sweep.curves[0].answers[0],
        "instance": long,
        "prepared": remat.prepare(long),
        "answer": remat.least_budget(long, algorithm="rotor").answer,
    }


def test_no_public_object_prints_arrays():
    for name, found in objects().items():
        for text in (repr(found), str(found)):
            assert "array(" not in text, name
            assert " object at 0x" not in text, name
            assert len(text) < 3000, name


@pytest.mark.parametrize("decision", ["recomputed", "kept", "offloaded"])
def test_decisions_of_stages_can_be_selected(decision):
    result = remat.solve(
        remat.chain(forward_time=[1, 1, 1, 1], backward_time=1, output_size=4, saved_size=4, input_size=4),
        algorithm="periodic",
    )
    rows = result.stage_decisions
    assert rows.of(decision) == [row for row in rows if row.decision == decision]
    assert rows.of("recomputed")


def test_a_decision_that_stages_lack_is_refused():
    rows = remat.solve(CHAIN, algorithm="keep-all").stage_decisions
    with pytest.raises(remat.OptionError, match="'recompute' is not a decision; did you mean 'recomputed'"):
        rows.of("recompute")
    with pytest.raises(remat.OptionError, match="'unused' is not a decision"):
        rows.of("unused")
