"""A schedule that a caller has written by hand: a list of steps, verified or used as a warm start."""

from dataclasses import replace

import numpy as np
import pytest

import remat
from remat import InstanceError, OptionError

GRAPH = remat.dag(
    reads=[[], [0], [0, 1]],
    writes=[[0], [1], [2]],
    time=[1, 2, 3],
    size=[5, 6, 7],
    names=["a", "b", "c"],
    value_names=["va", "vb", "vc"],
    outputs=["vc"],
    time_unit="unit",
    size_unit="unit",
)
TWO = remat.device(link=4)
STEPS = [{"run": "a"}, {"run": "b", "drop": ["va"]}, {"run": "a"}, {"run": "c", "drop": ["va", "vb"]}]


@pytest.mark.parametrize("form", [list, tuple])
def test_steps_alone_are_a_schedule(form):
    report = remat.verify(GRAPH, form(STEPS))
    assert report.ok
    assert (report.makespan, report.recompute_time, report.peak_memory) == (7, 1, {"memory": 18})


def test_steps_of_results_are_a_schedule():
    """Runs, copies and drops as `result.steps` has them, or made by hand."""
    mine = [remat.Run("a"), remat.Run("b", drop=("va",)), remat.Run("a"), remat.Run("c", drop=("va", "vb"))]
    for form in (list, tuple):
        reports = [remat.verify(GRAPH, form(steps)) for steps in (mine, STEPS)]
        assert [(one.ok, one.makespan, one.peak_memory) for one in reports] == [(True, 7, {"memory": 18})] * 2
    assert list(remat.schedule_of(GRAPH, mine).steps) == list(remat.schedule_of(GRAPH, STEPS).steps)
    assert remat.verify(GRAPH, [*mine[:1], STEPS[1], *mine[2:]]).ok
    chain = remat.chain(forward_time=[1, 1, 2], backward_time=2, output_size=4, input_size=4, machine=TWO)
    solved = remat.solve(chain, algorithm="vdnn-all")
    assert {type(step) for step in solved.steps} == {remat.Run, remat.Copy, remat.Drop}
    expected = remat.verify(chain, solved)
    for steps in (solved.steps, list(solved.steps), [replace(step, start=None) for step in solved.steps]):
        report = remat.verify(chain, steps)
        assert report.ok
        assert (report.makespan, report.peak_memory) == (expected.makespan, expected.peak_memory)
    part = [remat.Run("a"), remat.Drop(("va",), "memory", after=(0,)), remat.Run("a", start=None), *mine[1:]]
    assert remat.verify(GRAPH, part).recompute_time == 2


def test_steps_may_have_numbers_of_numpy():
    starts = np.array([0, 1, 3, 4])
    assert remat.verify(GRAPH, [step | {"start": starts[k]} for k, step in enumerate(STEPS)]).ok
    late = remat.verify(GRAPH, [step | {"start": starts[k] // 2} for k, step in enumerate(STEPS)])
    assert {found.rule for found in late.violations} >= {"resource-busy"}


def test_a_saved_schedule_is_a_result_again(tmp_path):
    solved = remat.solve(GRAPH)
    solved.save(tmp_path / "plan.json")
    for schedule in (tmp_path / "plan.json", str(tmp_path / "plan.json"), solved.to_dict()):
        read = remat.schedule_of(GRAPH, schedule)
        assert (read.makespan, read.order, list(read.decisions)) == (6, solved.order, list(solved.decisions))


def test_steps_and_orders_are_results():
    result = remat.schedule_of(GRAPH, STEPS)
    assert result.decisions.of("recomputed") == ["va"]
    assert remat.schedule_of(GRAPH, [step["run"] for step in STEPS]).order == result.order
    assert remat.schedule_of(GRAPH, (step["run"] for step in STEPS), budget=17).shortfall.need == 18
    with pytest.raises(OptionError, match=r"breaks rules; the first of 2: "):
        remat.schedule_of(GRAPH, [*STEPS[:2], STEPS[3]])
    with pytest.raises(OptionError, match="budget: a schedule has no budget"):
        remat.schedule_of(GRAPH, STEPS, budget=17)


def test_one_broken_rule_is_named_alone():
    with pytest.raises(OptionError, match=r"^the schedule breaks one rule: step 3: capacity: [^;]*$"):
        remat.schedule_of(GRAPH, STEPS, machine=remat.device(17))


def test_the_bound_of_a_schedule_is_that_of_all_schedules():
    result = remat.schedule_of(GRAPH, STEPS)
    assert (result.lower_bound, result.status, result.optimal_within) == (6, "feasible", None)
    assert result.gap == pytest.approx(1 / 7)
    assert "lower bound     6, gap 14.3 %" in result.summary()
    once = remat.schedule_of(GRAPH, [{"run": "a"}, {"run": "b"}, {"run": "c"}])
    assert (once.lower_bound, once.status, once.proved_optimal) == (6, "optimal", True)
    assert "lower bound     6, reached" in once.summary()


def test_a_bound_that_is_not_known_is_not_printed():
    result = replace(remat.schedule_of(GRAPH, STEPS), lower_bound=0)
    assert "lower bound" not in result.summary()


def test_a_check_within_a_budget():
    assert not remat.verify(GRAPH, STEPS, budget=1).ok
    peak = max(remat.verify(GRAPH, STEPS).peak_memory.values())
    assert remat.verify(GRAPH, STEPS, budget=peak).ok


def test_machines_of_a_solve_are_named_in_errors():
    with pytest.raises(InstanceError, match=r"machine\.memories\[0\]\.capacity: '1MB' is in bytes"):
        remat.solve(GRAPH, machine=remat.device("1MB"))


def test_violations_name_the_step():
    report = remat.verify(GRAPH, [*STEPS[:2], STEPS[3]])
    assert {(found.step, found.rule) for found in report.violations} == {(2, "read-missing"), (2, "free-missing")}


def test_steps_alone_are_a_warm_start():
    for steps in (STEPS, remat.schedule_of(GRAPH, STEPS).steps):
        result = remat.solve(GRAPH, warm_start=steps, algorithm="keep-all")
        assert result.makespan == 6


@pytest.mark.parametrize("steps", [[3], ["a"], [{"start": 1}], [{"run": "a", "begin": 0}]])
def test_wrong_steps_are_named(steps):
    with pytest.raises(InstanceError, match=r"\$\.steps\[0\]"):
        remat.verify(GRAPH, steps)
