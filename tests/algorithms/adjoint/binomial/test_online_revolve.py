"""Online checkpointing: its proved ranges for every n, and that it decides without knowing n."""

from functools import cache
from itertools import islice, pairwise

import pytest

import remat
from remat import OptionError
from remat.schedule.actions import Advance, Backward, Checkpoint, Discard, Restore
from remat.schedule.operations import Operation
from remat.time_loops.online import OnlineSchedule
from remat_algorithms.adjoint.binomial.online_revolve import OnlinePlacement
from remat_algorithms.adjoint.plan import Plan
from remat_algorithms.adjoint.revolve_operations import Splits
from remat_algorithms.kit.binomial import advances, beta, first_split, repetition

UNIT = {"time": "unit", "memory": "unit"}


def loop(steps, slots=None, **level):
    storage = {} if slots is None else {"storage": [{"name": "ram", "slots": slots, **level}]}
    return {"schema": "remat.instance/1", "kind": "adjoint", "units": UNIT, "steps": steps, **storage}


def gaps(placement):
    """Distances from each checkpoint to the next one, or to the live state."""
    return [end - first for first, end in pairwise([*placement.checkpoints, placement.live])]


def cost(placement, slots):
    """Advances of the first sweep and of the best reversal of the parts between the checkpoints."""
    return placement.live + sum(advances(gap, slots - k) for k, gap in enumerate(gaps(placement)))


SLOTS = (1, 2, 3, 4, 5, 7, 10, 16, 30, 61, 100)


@pytest.mark.parametrize("slots", SLOTS)
def test_within_its_bounds_for_every_n_up_to_2000(slots):
    """No step is advanced more often than it must be for any n; least advances up to beta(s, 2) + 1 steps."""
    placement = OnlinePlacement(slots)
    for n in range(1, 2001):
        assert placement.live == n - 1
        assert len(placement.checkpoints) <= slots
        r = repetition(n, slots)
        assert all(gap <= beta(slots - k, r - 1) for k, gap in enumerate(gaps(placement)))
        least, taken = advances(n, slots), cost(placement, slots)
        assert taken >= least
        if n <= (slots + 1) * (slots + 2) // 2 + 1 or slots == 1:
            assert taken == least
        else:
            assert taken <= r * n
            assert taken * (r - 1) * slots <= r * (slots + 1) * least
        placement.advance()


@pytest.mark.parametrize(("slots", "share"), [(5, 1.25), (30, 1.415)])
def test_what_not_knowing_n_costs(slots, share):
    """The figures of docs/how-to/adjoint.md."""
    placement, worst = OnlinePlacement(slots), 1.0
    for n in range(2, 3001):
        placement.advance()
        worst = max(worst, cost(placement, slots) / advances(n, slots))
    assert share - 0.005 < worst <= share


def replayed(entries, n, slots):
    """Follow the operations; return how often each step is advanced."""
    live, stored, left, times = 0, set(), n, [0] * n
    for operation, first, second in entries:
        if operation == Operation.ADVANCE:
            assert live == first
            for step in range(first, second):
                times[step] += 1
            live = second
        elif operation == Operation.BACK:
            assert live == first == left - 1
            left, live = first, None
        elif operation == Operation.WRITE:
            assert live == first
            stored.add(first)
            assert len(stored) <= slots
        else:
            assert first in stored
            if operation != Operation.READ:
                stored.remove(first)
            if operation != Operation.DISCARD:
                live = first
    assert left == 0
    assert not stored
    return times


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("reached", [False, True])
def test_reversal_advances_no_step_too_often(slots, reached):
    for n in (*range(1, 60), 150, 333):
        placement = OnlinePlacement(slots)
        sweep = [entry for _ in range(n if reached else n - 1) for entry in placement.advance()]
        predicted = cost(placement, slots)
        times = replayed([*sweep, *placement.finish(reached=reached)], n, slots)
        assert sum(times) == predicted
        assert max(times) <= repetition(n + 1 if reached else n, slots)


@pytest.mark.parametrize("slots", [1, 2, 3, 8])
def test_the_first_sweep_does_not_depend_on_n(slots):
    placement = OnlinePlacement(slots, 1)
    longest = [entry for _ in range(200) for entry in placement.advance()]
    for n in (1, 2, 3, 10, 57, 200):
        entries = list(remat.stream(loop(n, slots), algorithm="online-revolve").operations())
        sweep = entries[: next(k for k, entry in enumerate(entries) if entry[0] == Operation.BACK)]
        assert sweep == longest[: len(sweep)]
        assert sum(entry[0] == Operation.ADVANCE for entry in sweep) == n - 1


@cache
def best_run(gap_list, n, slots, last):
    """Whether some online rule takes least advances for every number of steps from n to `last`, from these gaps on."""
    taken = n - 1 + sum(advances(gap, slots - k) for k, gap in enumerate(gap_list))
    if taken != advances(n, slots):
        return False
    if n == last:
        return True
    following = [(*gap_list[:-1], gap_list[-1] + 1)] if gap_list else []
    if len(gap_list) < slots:
        following.append((*gap_list, 1))
    following += [
        (*gap_list[: k - 1], gap_list[k - 1] + gap_list[k], *gap_list[k + 1 :], 1) for k in range(1, len(gap_list))
    ]
    return any(best_run(after, n + 1, slots, last) for after in following)


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_no_online_rule_is_optimal_for_longer(slots):
    """All rules, exhaustively: the range of least advances cannot be extended by a single step."""
    proved = beta(slots, 2) + 1
    assert best_run((), 1, slots, proved)
    assert not best_run((), 1, slots, proved + 1)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16, 17, 40])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_schedules_are_verified(n, slots):
    for document, budget in ((loop(n, slots), None), (loop(n), slots + 2)):
        result = remat.solve(document, algorithm="online-revolve", budget=budget)
        placement = OnlinePlacement(slots)
        for _ in range(n - 1):
            placement.advance()
        assert result.makespan == cost(placement, slots) + n
        assert result.report.ok
        assert (result.optimal_within is not None) == (cost(placement, slots) == advances(n, slots))
        memory = "ram" if budget is None else "memory"
        assert result.peak_memory[memory] <= slots + (0 if budget is None else 2)


def test_transfer_times_count_in_the_makespan():
    result = remat.solve(loop(9, 3, write_time=10, read_time=100), algorithm="online-revolve")
    plan = Plan()
    plan.extend(remat.stream(loop(9, 3), algorithm="online-revolve").operations())
    assert result.makespan == plan.advances + 9 + 10 * plan.writes[1] + 100 * plan.reads[1]
    assert result.optimal_within is None
    overlapping = remat.solve(loop(9, 3, write_time=1, channel="dma"), algorithm="online-revolve")
    assert overlapping.report.ok


def test_no_slot_is_infeasible():
    answer = remat.solve(loop(5, 0), algorithm="online-revolve")
    assert answer.scope is not None
    assert answer.least_budget.size == 1
    with pytest.raises(OptionError, match="needs steps of equal forward time"):
        remat.solve(loop(2) | {"steps": [{"forward_time": k} for k in (1, 2, 3)]}, algorithm="online-revolve")


# --- the number of steps is really not known --------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2, 3, 6])
def test_online_schedule_decides_as_the_registered_algorithm(slots):
    for n in (1, 2, 3, 4, 9, 30, 71):
        schedule = OnlineSchedule(slots)
        told = []
        for k in range(n - 1):
            assert schedule.live == k
            told += [*schedule.advance(), Advance(k, k + 1)]
        assert len(schedule.checkpoints) == min(slots, n - 1)
        told += schedule.finish()
        assert told == list(remat.stream(loop(n), budget=slots + 2, algorithm="online-revolve").actions())


@pytest.mark.parametrize("reached", [False, True])
def test_a_time_loop_of_unknown_length(reached):
    """States are numbers that square and halve; the reversal sees each one of them, last first."""
    states, trajectory = {}, [97]
    schedule = OnlineSchedule(4)

    def obey(action):
        nonlocal live
        match action:
            case Checkpoint(state):
                states[state] = live
                assert len(states) <= 4
            case Discard(state):
                del states[state]
            case Restore(state):
                live = states[state]
            case Advance(first, last):
                assert live == trajectory[first]
                for _ in range(first, last):
                    live = step(live)
            case Backward(number, last):
                assert last == (not seen)
                assert live == trajectory[number]
                seen.append(number)

    def step(state):
        return (state * state + 1) // 2 % 1009

    live, seen = 97, []
    while live != 65 and len(trajectory) < 60:
        for action in schedule.advance():
            obey(action)
        live = step(live)
        trajectory.append(live)
    taken = len(trajectory) - 1
    assert taken > 10
    for action in schedule.finish(reached=reached):
        obey(action)
    assert seen == list(range(taken - 1 if reached else taken, -1, -1))
    assert not states


def test_misuse_is_refused():
    for slots in (0, -1, 2.0, True, "3"):
        with pytest.raises(OptionError, match=r"slots: expected a whole number >= 1"):
            OnlineSchedule(slots)
    with pytest.raises(OptionError, match="revolve does not decide online; use online-revolve"):
        OnlineSchedule(3, algorithm="revolve")
    schedule = OnlineSchedule(3)
    with pytest.raises(OptionError, match="no step has been taken"):
        schedule.finish(reached=True)
    assert list(schedule.finish()) == [Backward(0, last=True)]
    for call in (schedule.advance, schedule.finish):
        with pytest.raises(OptionError, match="finished"):
            call()


def test_splits_are_the_least_optimal_ones():
    for n in (2, 3, 10, 77, 400):
        splits = Splits(n)
        for slots in range(2, 14):
            for steps in range(2, n + 1):
                assert splits(steps, slots) == first_split(steps, slots)
    splits = Splits(10**9)
    for slots in (2, 3, 30, 31, 10_000):
        for steps in (2, 10_000, 10_002, 123_456_789, 10**9):
            assert splits(steps, slots) == first_split(steps, slots)


def test_many_steps_are_decided_in_little_memory():
    schedule = OnlineSchedule(20)
    for _ in range(20_000):
        schedule.advance()
    assert len(schedule.checkpoints) == 20
    assert len(list(islice(schedule.finish(reached=True), 100))) == 100


# --- bad input --------------------------------------------------------------------------------------------------------


def test_more_slots_than_steps_and_states_of_no_size():
    for document in (loop(6, 50), loop(6, 0) | {"state_size": 0}, loop(6) | {"state_size": 0, "adjoint_size": 0}):
        result = remat.solve(document, algorithm="online-revolve", budget=None)
        assert result.recompute_time == 0
        assert result.report.ok


def test_a_capacity_below_one_state_names_the_least():
    for capacity, least in ((0, 7), (6, 7)):
        document = loop(5) | {"state_size": 7, "storage": [{"name": "ram", "capacity": capacity}]}
        answer = remat.solve(document, algorithm="online-revolve")
        assert answer.scope is not None
        assert answer.least_budget.size == least
        assert answer.least_budget.sufficient
        assert remat.solve(document, algorithm="online-revolve", budget=least).report.ok
        with pytest.raises(OptionError, match=rf"it finds one in {least}: ask for ram={least}"):
            remat.stream(document, algorithm="online-revolve")


@pytest.mark.parametrize("field", ["forward_time", "backward_time", "state_size"])
def test_negative_figures_are_refused(field):
    with pytest.raises(remat.InstanceError, match=field):
        remat.solve(loop(5, 2) | {field: -1}, algorithm="online-revolve")
    with pytest.raises(remat.InstanceError, match="write_time"):
        remat.stream(loop(5, 2, write_time=-1), algorithm="online-revolve")
