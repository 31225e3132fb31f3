"""Plans drive a time loop: the adjoint equals that of running every step once, for any storage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.time_loops import run

RATE = 0.01


def step(state: float) -> float:
    return state + RATE * state * state


def straight(steps: int, initial: float = 1.0) -> float:
    """The derivative of the last state by the first, step by step."""
    derivative, state = 1.0, initial
    for _ in range(steps):
        derivative *= 1 + 2 * RATE * state
        state = step(state)
    return derivative


class Code:
    """A user's code that counts, and refuses what no adjoint code could do."""

    def __init__(self, steps: int) -> None:
        self.steps, self.forwards, self.stored = steps, 0, {}
        self.expected, self.written = steps - 1, 0

    def forward(self, i: int, state: float) -> float:
        assert 0 <= i < self.steps
        self.forwards += 1
        return step(state)

    def backward(self, i: int, state: float, adjoint: float) -> float:
        assert i == self.expected
        self.expected -= 1
        return adjoint * (1 + 2 * RATE * state)

    def store(self, number: int, level: str, state: float) -> None:
        assert (number, level) not in self.stored
        self.stored[number, level] = state
        self.written += 1

    def restore(self, number: int, level: str) -> float:
        return self.stored[number, level]

    def discard(self, number: int, level: str) -> None:
        del self.stored[number, level]


PLANS = [
    ("revolve", [{"name": "ram", "slots": 3}]),
    ("multistage", [{"name": "ram", "slots": 1}, {"name": "disk", "slots": 2, "write_time": 1}]),
    ("h-revolve", [{"name": "ram", "slots": 1}, {"name": "disk", "slots": 3, "write_time": 1}]),
    ("store-all", [{"name": "ram"}]),
]


@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.integers(2, 15), st.sampled_from(PLANS))
def test_the_adjoint_is_exact_and_the_code_owns_its_checkpoints(steps: int, plan: Any) -> None:
    algorithm, storage = plan
    found = remat.solve(remat.adjoint(steps, storage=storage), algorithm=algorithm)
    code = Code(steps)
    result = run(
        found, 1.0, forward=code.forward, backward=code.backward, final=1.0,
        store=code.store, restore=code.restore, discard=code.discard,
    )  # fmt: skip
    assert result == pytest.approx(straight(steps), rel=1e-12)
    assert code.stored == {}
    assert code.expected == -1
    runs = sum(task.startswith("F") for task in found.order)
    assert code.forwards == runs
    alone = Code(steps)
    assert run(found, 1.0, forward=alone.forward, backward=alone.backward, final=1.0) == result


@pytest.mark.parametrize("name", ["revolve", "store-all", "recompute-all"])
def test_one_memory_holds_states_and_checkpoints(name: str) -> None:
    found = remat.solve(remat.adjoint(8), algorithm=name, budget=None if name == "store-all" else 6)
    code = Code(8)
    assert run(found, 1.0, forward=code.forward, backward=code.backward, final=1.0) == pytest.approx(straight(8))


@pytest.mark.parametrize("level", ["ram", "disk"])
def test_the_initial_state_may_lie_in_a_level(level: str) -> None:
    storage = [{"name": "ram", "slots": 2}, {"name": "disk", "write_time": 1}]
    found = remat.solve(remat.adjoint(9, storage=storage, initial_state=level), algorithm="h-revolve")
    code = Code(9)
    result = run(
        found, 1.0, forward=code.forward, backward=code.backward, final=1.0,
        store=code.store, restore=code.restore, discard=code.discard,
    )  # fmt: skip
    assert result == pytest.approx(straight(9))


def test_tapes_are_the_code_s_own() -> None:
    found = remat.solve(remat.adjoint(7, tape_size=2, storage=[{"name": "ram", "capacity": 7}]), algorithm="mixed")
    assert any(task.startswith("Fe") for task in found.order)

    def taping(i: int, state: float) -> tuple[float, float]:
        return step(state), 1 + 2 * RATE * state

    def backward(i: int, tape: float, adjoint: float) -> float:
        return 1.0 if i == 7 else adjoint * tape

    found_adjoint = run(found, 1.0, forward=lambda i, x: step(x), backward=backward, taping=taping)
    assert found_adjoint == pytest.approx(straight(7))
    with pytest.raises(remat.OptionError, match="give taping"):
        run(found, 1.0, forward=lambda i, x: step(x), backward=backward)


def test_streams_run_too_and_under_the_builder_s_name() -> None:
    loop = remat.adjoint(50, storage=[{"name": "ram", "slots": 4}])
    code = Code(50)
    running = remat.adjoint.run  # type: ignore[attr-defined]
    found = running(remat.stream(loop), 1.0, forward=code.forward, backward=code.backward, final=1.0)
    assert found == pytest.approx(straight(50))


def test_a_stream_of_a_plan_has_the_steps_of_the_plan() -> None:
    storage = [{"name": "ram", "slots": 2}, {"name": "disk", "slots": 2, "write_time": 1}]
    plan = remat.solve(remat.adjoint(20, storage=storage), algorithm="multistage")
    streamed = remat.stream(plan)
    assert repr(streamed).startswith("Stream(multistage")
    assert [str(one)[:30] for one in streamed] == [
        str(one)[:30] for one in remat.stream(plan.instance, algorithm="multistage")
    ]
    with pytest.raises(remat.OptionError, match="give the plan alone"):
        remat.stream(plan, algorithm="revolve")
    other = remat.solve(plan.instance, algorithm="h-revolve")
    with pytest.raises(remat.OptionError, match=r"h-revolve, which cannot be streamed: run its steps with"):
        remat.stream(other)


def test_what_cannot_be_run() -> None:
    chain = remat.solve(remat.chain(forward_time=[1], backward_time=1, output_size=1, input_size=1))
    loop = remat.adjoint(5)
    nothing = {"forward": lambda i, x: x, "backward": lambda i, x, y: y}
    with pytest.raises(remat.OptionError, match="time loops"):
        run(chain, 1.0, **nothing)
    with pytest.raises(remat.OptionError, match="no schedule to run: the answer is infeasible"):
        run(remat.solve(loop, budget=1), 1.0, **nothing)
    with pytest.raises(remat.OptionError, match="store and restore together"):
        run(remat.solve(loop), 1.0, **nothing, store=lambda n, level, x: None)


def test_unused_slots_are_remarked() -> None:
    found = remat.solve(remat.adjoint(3, storage=[{"name": "ram", "slots": 9}]), algorithm="revolve")
    free = 9 - found.peak_memory["ram"]
    assert f"{free} of 9 slots of ram stay unused" in " ".join(found.summary().split())
    tight = remat.solve(remat.adjoint(30, storage=[{"name": "ram", "slots": 2}]), algorithm="revolve")
    assert "stay unused" not in tight.summary()


def test_a_saved_plan_is_run_with_its_instance(tmp_path: Any) -> None:
    loop = remat.adjoint(30, storage=[{"name": "ram", "slots": 3}])
    plan = remat.solve(loop, algorithm="revolve")
    plan.save(tmp_path / "plan.json")
    given = {"forward": lambda i, x: step(x), "backward": lambda i, x, y: y * (1 + 2 * RATE * x), "final": 1.0}
    expected = pytest.approx(straight(30), rel=1e-12)
    for saved in (tmp_path / "plan.json", str(tmp_path / "plan.json"), plan.to_dict()):
        assert run(saved, 1.0, instance=loop, **given) == expected
        with pytest.raises(remat.OptionError, match="instance: give the loop of"):
            run(saved, 1.0, **given)
    assert remat.adjoint.run(str(tmp_path / "plan.json"), 1.0, instance=loop, **given) == expected
    with pytest.raises(remat.OptionError, match=r"plan: expected the result of remat\.solve .* not 3"):
        run(3, 1.0, **given)  # type: ignore[arg-type]
    with pytest.raises(remat.OptionError, match="this plan knows its loop"):
        run(plan, 1.0, instance=loop, **given)
    with pytest.raises(remat.OptionError, match="give its own instance"):
        run(plan.to_dict(), 1.0, instance=remat.adjoint(31), **given)


def test_the_adjoint_may_depend_on_the_last_state() -> None:
    loop = remat.adjoint(20, storage=[{"name": "ram", "slots": 3}])

    def backward(i: int, state: float, adjoint: Any) -> Any:
        if i == 19:
            adjoint = step(state)  # of half of its square
        return adjoint * (1 + 2 * RATE * state)

    last = 1.0
    for _ in range(20):
        last = step(last)
    found = run(remat.solve(loop), 1.0, forward=lambda i, x: step(x), backward=backward)
    assert found == pytest.approx(last * straight(20), rel=1e-12)
