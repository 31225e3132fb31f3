from __future__ import annotations

from typing import Any

import pytest

from remat.generate.adjoint import heterogeneous_time_loop, parse_storage, time_loop


def test_a_loop_defaults_to_the_lecture_case() -> None:
    made = time_loop(steps=6)
    assert made["units"] == {"time": "unit", "memory": "unit"}
    assert {key: made[key] for key in ("steps", "forward_time", "backward_time", "state_size")} == {
        "steps": 6,
        "forward_time": 1,
        "backward_time": 1,
        "state_size": 1,
    }
    assert "storage" not in made
    assert "initial_state" not in made


def test_storage_in_one_line() -> None:
    assert parse_storage("ram:slots=10; disk: bandwidth=2GB/s, write_time=1.5,channel=io") == [
        {"name": "ram", "slots": 10},
        {"name": "disk", "bandwidth": "2GB/s", "write_time": 1.5, "channel": "io"},
    ]
    assert parse_storage("disk:capacity=8GiB,bandwidth=2e9; tape:capacity=1e12") == [
        {"name": "disk", "capacity": "8GiB", "bandwidth": 2_000_000_000},
        {"name": "tape", "capacity": 10**12},
    ]
    assert parse_storage("ram") == [{"name": "ram"}]
    assert parse_storage("") == []


@pytest.mark.parametrize(
    ("storage", "units", "said"),
    [
        ("disk:bandwidth=2GB/s", "unit", "bandwidth: .2GB/s. is per second, .* units=si counts seconds"),
        ("ram:capacity=3GB", "unit", "is in bytes, .* units=si"),
        ("ram:capacity=3gb", "si", "3gb. has an unknown unit .* did you mean"),
        ("d:write_time=3parsec", "si", "unknown unit 'parsec'"),
    ],
)
def test_storage_is_read_in_the_units_of_the_document(storage: str, units: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        time_loop(storage=storage, units=units)


def test_storage_as_mappings() -> None:
    levels: list[dict[str, object]] = [
        {"name": "ram", "slots": 3},
        {"name": "disk", "capacity": None, "read_time": 2.0},
    ]
    made = time_loop(storage=levels, initial_state="disk", adjoint_size=2, tape_size=5, units="si")
    assert made["storage"] == [
        {"name": "ram", "slots": 3},
        {"name": "disk", "capacity": None, "read_time": 2},
    ]
    assert made["initial_state"] == "disk"
    assert made["adjoint_size"] == 2
    assert made["tape_size"] == 5
    assert made["units"] == {"time": "s", "memory": "B"}


def test_steps_that_differ() -> None:
    made = heterogeneous_time_loop(steps=300, min_time=2, max_time=6, backward_factor=1.5, seed=3)
    assert len(made["steps"]) == 300
    for step in made["steps"]:
        assert 2 <= step["forward_time"] <= 6
        assert step["backward_time"] == 1.5 * step["forward_time"]
        assert "state_size" not in step
    assert made["state_size"] == 1
    assert made == heterogeneous_time_loop(steps=300, min_time=2, max_time=6, backward_factor=1.5, seed=3)


def test_states_that_differ() -> None:
    made = heterogeneous_time_loop(steps=100, min_size=5, max_size=8, storage="ram:slots=2", initial_state="ram")
    assert {step["state_size"] for step in made["steps"]} == {5, 6, 7, 8}
    assert made["initial_state"] == "ram"


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("ram:slots", "'slots' is not of the form field=value"),
        ("ram:slot=3", "unknown field 'slot'.*did you mean 'slots'"),
        ("ram:slots=many", "storage: slots 'many' is not a number"),
        ("ram:slots=3GB", "storage: slots '3GB' is not a number"),
        ("ram:slots=1.5", "storage: slots must be a whole number, not 1.5"),
        ("ram:slots=3,slots=4", "level 'ram' gives 'slots' twice"),
        ("ram:slots=3,capacity=4", "level 'ram' has both capacity and slots"),
        ("ram;ram", "level name 'ram' is already used"),
        ("working:slots=3", "level name 'working' is already used"),
        (":slots=3", "a level has no name"),
        ("disk:bandwidth=0", "storage: bandwidth must be positive, not 0"),
        ("disk:write_time=-1", "storage: write_time must be at least 0, not -1"),
        ("disk:read_time=fast", "storage: read_time 'fast' is not a number"),
    ],
)
def test_errors_in_storage(storage: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        time_loop(storage=storage)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"steps": 10**10}, "steps must be at most 1,000,000,000"),
        ({"state_size": -1}, "state_size must be at least 0"),
        ({"initial_state": "disk"}, "initial_state must be one of live, not 'disk'"),
        ({"steps": 10**9, "state_size": 2**40}, "lower state_size or steps"),
    ],
)
def test_errors_of_time_loops(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        time_loop(**parameters)


def test_errors_of_heterogeneous_loops() -> None:
    with pytest.raises(ValueError, match="steps must be at most 1,000,000, not 1000000000"):
        heterogeneous_time_loop(steps=10**9)
    with pytest.raises(ValueError, match=r"backward_factor \* max_time must be at most 1e300"):
        heterogeneous_time_loop(backward_factor=1e300)
    with pytest.raises(ValueError, match="lower max_size or steps"):
        heterogeneous_time_loop(max_size=2**62)
