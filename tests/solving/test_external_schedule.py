"""Orders of runs from elsewhere: verified results, or an error that names the run."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.plugin.proposal import Status
from remat.testing import strategies
from tests.oracles import referee

DAG = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "tasks": [
        {"id": "a", "time": 1, "size": 4},
        {"id": "b", "time": 2, "size": 3, "reads": ["a"], "workspace": 5},
        {"id": "c", "time": 3, "size": 2, "reads": ["a", "b"], "recomputable": False},
    ],
    "outputs": ["c"],
}


def test_runs_become_a_schedule():
    found = remat.schedule_of(DAG, ["a", "b", "c"])
    assert (found.algorithm, found.status, found.makespan, found.peak_memory) == ("given", "optimal", 6, {"memory": 12})
    again = remat.schedule_of(DAG, iter(["a", "b", "a", "c"]))
    assert (again.status, again.makespan, again.recompute_time) == (Status.FEASIBLE, 7, 1)
    assert [step.task for step in again.steps if hasattr(step, "task")] == ["a", "b", "a", "c"]


def test_a_budget_below_the_peak_names_it():
    found = remat.schedule_of(DAG, ["a", "b", "c"], budget=12)
    assert found.makespan == 6
    tight = remat.schedule_of(DAG, ["a", "b", "c"], budget=11)
    assert tight.makespan is None
    assert (tight.least_budget.size, tight.least_budget.sufficient) == (12, True)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (["a", "c"], "^runs: run 1, 'c', reads 'b', which no earlier run writes$"),
        (["b"], "^runs: run 0, 'b', reads 'a'"),
        (["a", "bb"], "^runs: run 1: there is no task 'bb'; did you mean 'b'"),
        (["a", 3], "^runs: run 1: there is no task 3"),
        (["a", "b"], "^runs: schedule: output-missing: c is not in memory at the end$"),
        (["a", "b", "c", "c"], "^runs: step 3: not-recomputable: task c may run only once"),
        ([], "^runs: schedule: output-missing"),
        (3, "^runs: expected names of tasks in order, or a schedule, not 3$"),
    ],
)
def test_what_cannot_be_done_is_named(runs, message):
    with pytest.raises(remat.OptionError, match=message) as caught:
        remat.schedule_of(DAG, runs)
    assert caught.value.argument == "runs"


@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["chain", "adjoint", "dag", "tree"]).flatmap(strategies.documents), st.data())
def test_any_order_of_runs_is_what_the_other_referee_says(document, data):
    """Runs of keep-all with some immediate repeats get the same figures from the oracle."""
    left_out = ("machine", "optimizer_memory", "parameter_memory", "storage", "initial_state")
    document = {key: value for key, value in document.items() if key not in left_out}
    for key in document.keys() & {"inputs", "outputs"}:  # without a machine, they are in the only memory
        document[key] = [one["value"] if isinstance(one, dict) else one for one in document[key]]
    if document["kind"] == "adjoint":  # the oracle takes no defaults
        document = {"state_size": 1, "forward_time": 1, "backward_time": 1} | document
    plain = remat.solve(document, algorithm="keep-all")
    runs = [step.task for step in plain.steps if hasattr(step, "task")]
    for order in (runs, [name for task in runs for name in [task] * data.draw(st.integers(1, 2))]):
        try:
            found = remat.schedule_of(document, order)
        except remat.OptionError:
            if order is runs:
                raise
            continue  # some tasks may run once only, or read what they have freed
        judged = referee.check(document, found.to_dict())
        assert judged.violations == []
        assert (judged.makespan, judged.peaks) == (found.makespan, found.peak_memory)
        if order is runs:
            assert (found.makespan, found.peak_memory) == (plain.makespan, plain.peak_memory)


def test_a_result_is_verified_as_its_document():
    chain = remat.chain(forward_time=[1, 2], backward_time=1, output_size=3)
    result = remat.solve(chain)
    assert remat.verify(chain, result).makespan == result.makespan
    other = remat.chain(forward_time=[1, 5], backward_time=1, output_size=3)
    assert "other-instance" in {violation.rule for violation in remat.verify(other, result).violations}
