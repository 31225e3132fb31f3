"""`offmate`: a timeline worked by hand, its program, and its choices against all others on tiny chains."""

import itertools

import pytest

import remat
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.kit.programs.solvers import solve_program
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.weights.fraction_program import FractionProgram
from remat_algorithms.offload.weights.offmate import Decision, PartlyAway
from remat_algorithms.offload.weights.parameters import Choice, Setting
from tests.algorithms.offload.trained import chain, drawn, machine, stage
from tests.algorithms.offload.weights.test_zero_family import solve, timeline

THREE = chain(*(stage(4, 4, 2, output=0, saved=8, optimizer=0, update=0) for _ in range(3)), input_size=0)
"""F and B take 4. Saved tensors take 8 bytes and parameters 2, of which 2 cross a link in a time unit."""


def test_a_saved_tensor_that_leaves_by_hand():
    """Three saved tensors, parameters and a gradient are 24 + 6 + 2 bytes; of 24, one saved tensor has to leave.

    That of stage 1 leaves from 4, when F1 has made it, to 8. F3 may then start: it adds 8 to 6 + 8. It returns after
    B3 (16) has freed its own: from 16 to 20, when B1 starts. Updates take no time on the device. `weight-offload` moves
    all activations or none, and waits for the second one.
    """
    found = solve(THREE, "offmate", budget=24)
    times = dict(timeline(found))
    assert found.makespan == 24
    assert (times["s1>"], times["Fe3"], times["s1<"], times["B1"]) == (4, 8, 16, 20)
    assert solve(THREE, "offmate", budget=32).makespan == 24
    assert solve(THREE, "weight-offload", budget=24).makespan == 26


def best_choice(document, budget):
    """Return the minimum makespan over all parameters, updaters, recomputations and activations that leave."""
    setting = Setting(make_problem(remat.load(document), budget=budget), "test")
    ways = [
        Decision(Choice(streams, updater, again), saved, entering)
        for streams, updater, again, saved, entering in itertools.product((False, True), (0, 1), *[(False, True)] * 3)
    ]
    found = []
    for decisions in itertools.product(ways, repeat=len(setting.stages)):
        training = PartlyAway(setting, decisions)
        outcome = dispatch(training.graph, setting.machine, training.program)
        if isinstance(outcome, Dispatched):
            found.append(outcome.makespan)
    return min(found, default=None)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_all_choices_of_tiny_chains(seed):
    document = drawn(seed, longest=2, parameter_memory=("device", "host")[seed % 2])
    free = solve(document, "offmate")
    highest = free.peak_memory["device"]
    for share in (1.0, 0.8, 0.6):
        budget = int(highest * share)
        best = best_choice(document, budget)
        exact = solve(document, "offmate", budget=budget, evaluations=100_000)
        assert exact.makespan == best
        few = solve(document, "offmate", budget=budget, evaluations=5)
        assert few.makespan is None or best <= few.makespan
        if best is not None:
            assert exact.lower_bound <= best


def test_the_program_is_the_computation_where_nothing_has_to_leave():
    document = THREE | {"machine": machine(down=1000, up=1000)}
    setting = Setting(make_problem(remat.load(document), budget=1000), "test")
    program = FractionProgram(setting, 1000)
    answer = solve_program(program.program, "glop", Context())
    assert answer.bound * program.time_unit == pytest.approx(24, abs=0.1)
    for columns in (program.shares.parameters, program.shares.saved, program.shares.recomputed, program.shares.inputs):
        assert all(program.share(answer.solution, column) == pytest.approx(0, abs=1e-6) for column in columns)


def test_shares_where_a_third_of_the_saved_tensors_has_to_leave():
    setting = Setting(make_problem(remat.load(THREE), budget=24), "test")
    program = FractionProgram(setting, 24)
    answer = solve_program(program.program, "glop", Context())
    away, again = (
        sum(program.share(answer.solution, column) for column in columns)
        for columns in (program.shares.saved, program.shares.recomputed)
    )
    assert away == pytest.approx(1, abs=0.3)
    assert again == pytest.approx(0, abs=1e-6)


def test_unsupported_instances_are_refused():
    plain = {key: value for key, value in THREE.items() if key not in ("parameter_memory", "optimizer_memory")}
    bare = [{key: value for key, value in one.items() if "size" not in key or "put" in key} for one in plain["stages"]]
    bare = [{key: value for key, value in one.items() if key != "update_time"} for one in bare]
    with pytest.raises(remat.OptionError, match="chains with parameters"):
        remat.solve(plain | {"stages": bare}, algorithm="offmate")
    alone = {"memories": [{"name": "device"}], "processors": [{"name": "gpu", "memory": "device"}]}
    one = THREE | {"machine": alone, "optimizer_memory": "device"}
    with pytest.raises(remat.OptionError, match="links to another memory and back"):
        remat.solve(one, algorithm="offmate")


def test_a_budget_that_is_too_small_names_one_that_is_enough():
    refused = solve(THREE, "offmate", budget=11)
    assert refused.makespan is None
    enough = refused.least_budget.size
    assert solve(THREE, "offmate", budget=enough).makespan is not None
