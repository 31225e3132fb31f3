"""`Result.actions`, and a time loop that any plan drives through `remat.time_loops.run`."""

import random

import pytest

import remat
from remat.report.text.actions import actions
from remat.testing.cases import moderate
from remat.time_loops import run
from tests.seeds import seeds

RAM, DISK = {"name": "ram", "slots": 4}, {"name": "disk", "write_time": 3, "read_time": 2}
BESIDE = DISK | {"channel": "dma"}


def follows(plan, steps):
    """Assert that the plan makes the adjoint of the loop, to the bit, and leaves no checkpoint anywhere."""
    kept = {}

    def store(number, level, state):
        kept[level, number] = state

    found = run(
        plan,
        1.0,
        forward=lambda step, state: state + 0.001 * state * state,
        backward=lambda step, state, adjoint: adjoint * (1.0 + 0.002 * state),
        final=1.0,
        store=store,
        restore=lambda number, level: kept[level, number],
        discard=lambda number, level: kept.pop((level, number)),
    )
    state, factors = 1.0, []
    for _ in range(steps):
        factors.append(1 + 0.002 * state)
        state += 0.001 * state * state
    expected = 1.0
    for factor in reversed(factors):
        expected *= factor
    assert found == expected, plan.algorithm
    assert not kept, plan.algorithm


@pytest.mark.parametrize(
    ("algorithm", "levels", "budget"),
    [
        ("h-revolve", [RAM, DISK], None),
        ("h-revolve", [RAM, {**DISK, "name": "ssd", "slots": 2}, DISK], None),
        ("two-level-async", [RAM, BESIDE], None),
        ("two-level-async", [RAM, BESIDE], {"working": 3}),
        ("async-multistage", [RAM, BESIDE], None),
        ("multistage", [RAM, DISK], None),
        ("revolve", [RAM], None),
        ("revolve", [], 6),
        ("adjoint-dp", [], 6),
        ("keep-all", [], None),
    ],
)
@pytest.mark.parametrize("steps", [1, 2, 60])
def test_a_plan_makes_the_adjoint(algorithm, levels, budget, steps):
    document = {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps, "backward_time": 2}
    document |= {"storage": levels, "units": {"time": "unit", "memory": "unit"}}
    if not levels:
        del document["storage"]
    plan = remat.solve(document, algorithm=algorithm, budget=budget)
    follows(plan, steps)


@pytest.mark.parametrize("seed", seeds(5, 12))
def test_any_plan_is_followed(seed):
    """Any algorithm, levels and speeds: the adjoint is that of the loop straight on, and nothing is left anywhere."""
    draw = random.Random(seed)
    steps = draw.choice([1, 2, 6, 20])
    disk = {"name": "disk", "bandwidth": draw.choice([4, 16, 64])} | draw.choice([{}, {"channel": "io"}])
    storage = [[{"name": "ram", "slots": draw.choice([3, 8])}], [{"name": "ram", "slots": 3}, disk], []][seed % 3]
    loop = {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps, "forward_time": 1, "backward_time": 2}
    loop |= {"state_size": 16, "storage": storage} if storage else {}
    known = {"adjoint-best": {"iterations": 20, "moves": 1000, "window": 500, "work": 0}, "dag-auto": {}}
    followed = 0
    for name in ("adjoint-best", "h-revolve", "two-level-async", "dag-offload-best", "dag-auto", "keep-all"):
        try:
            plan = remat.solve(loop, algorithm=name, options=known.get(name), time_limit=1)
        except remat.OptionError:
            continue
        if not plan.steps:
            continue
        follows(plan, steps)
        followed += 1
    assert followed >= 2


def test_actions_are_the_lines_of_the_command_line():
    result = remat.solve(moderate("chain"), algorithm="store-all")
    assert result.actions() == list(actions(result))
    assert result.actions()[-1] == "backward 1"
    assert remat.solve(moderate("chain"), budget=1).actions() == []
    with pytest.raises(remat.OptionError, match="chains and adjoints only"):
        remat.solve(moderate("dag")).actions()
