"""The context: deadline, seed, incumbents, progress, interruption."""

import math
import signal
import threading
import time

import numpy as np
import pytest

from remat.plugin.context import Context, interruptible
from remat.plugin.proposal import ALL_SCHEDULES, Termination
from remat.schedule.orders import Orders
from remat.schedule.steps import Steps

STEPS = Steps.of_runs(np.array([0, 1]))


def test_a_context_without_limits_never_stops():
    context = Context()
    assert not context.stopped
    assert context.seconds_left is None
    assert context.termination is Termination.COMPLETED


def test_deadline_to_come():
    context = Context(deadline=time.monotonic() + 1000)
    assert not context.stopped
    assert 0 < context.seconds_left <= 1000
    assert context.termination is Termination.COMPLETED


def test_deadline_that_has_passed():
    context = Context(deadline=time.monotonic() - 1)
    assert context.stopped
    assert context.seconds_left == 0
    assert context.termination is Termination.TIME_LIMIT


def test_interruption_comes_before_the_deadline():
    context = Context(deadline=time.monotonic() - 1, interrupted=True)
    assert context.stopped
    assert context.termination is Termination.INTERRUPTED


def test_the_seed_determines_random_numbers():
    def draw(seed):
        generator = Context(seed=seed).random()
        return [generator.random() for _ in range(3)]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_report_keeps_the_latest_incumbent_and_the_best_bound():
    context = Context()
    context.report(STEPS, makespan=9, bound=3, scope=ALL_SCHEDULES)
    context.report(bound=2, scope=ALL_SCHEDULES)
    assert (context.best_steps, context.best_makespan, context.best_bound) == (STEPS, 9, 3)
    better = Steps.of_runs(np.array([1]))
    context.report(better, makespan=8, bound=5, scope=ALL_SCHEDULES)
    assert (context.best_steps, context.best_makespan, context.best_bound) == (better, 8, 5)


def test_a_bound_is_told_with_its_scope():
    context = Context()
    with pytest.raises(ValueError, match="bound 3 is reported without the scope"):
        context.report(bound=3)
    context.report(bound=3, scope="some class")
    assert context.best_bound is None
    assert not context.history


def test_what_is_found_aside_is_no_answer():
    heard = []
    whole = Context(seed=7, threads=3, listener=heard.append)
    part = whole.aside()
    assert (part.deadline, part.seed, part.threads) == (None, 7, 3)
    part.report(STEPS, makespan=9, bound=3, scope=ALL_SCHEDULES)
    assert part.best_makespan == 9
    assert whole.best_steps is whole.best_bound is None
    assert not heard


def test_a_part_starts_from_the_best_schedule_of_all():
    whole = Context()
    assert whole.known_steps is None
    whole.report(STEPS, makespan=9)
    assert whole.known_steps is STEPS
    part = whole.part("other")
    assert part.known_steps is STEPS
    assert part.best_steps is None
    worse, better = Steps.of_runs(np.array([1])), Steps.of_runs(np.array([0]))
    part.report(worse, makespan=10)
    assert part.known_steps is STEPS
    part.report(better, makespan=8)
    assert part.known_steps is whole.part("third").known_steps is better
    # What runs aside may solve another problem.
    assert whole.aside().known_steps is None


def test_a_part_starts_from_the_best_orders_and_those_of_other_budgets():
    best, other = Orders((), ((),)), Orders((), ((), ()))
    whole = Context(neighbours=(other,))
    assert whole.known_orders == (other,)
    whole.report(STEPS, orders=best, makespan=9)
    assert whole.known_orders == (best, other)
    assert whole.known_steps is None
    part = whole.part("other")
    assert not part.continues
    assert part.known_orders == (best, other)
    assert part.continues
    assert whole.aside().known_orders == ()


def test_a_share_of_the_time_that_is_left():
    whole = Context(deadline=time.monotonic() + 1000)
    assert 200 < whole.aside(share=0.3).seconds_left <= 300
    assert 900 < whole.aside().seconds_left <= 1000
    assert 10 < whole.aside(share=0.3, seconds=20).seconds_left <= 20
    assert 80 < whole.aside(share=0.3).aside(share=0.3).seconds_left <= 90
    assert Context().aside(share=0.3).seconds_left is None
    assert Context().aside(share=0.3, seconds=20).seconds_left > 10
    assert Context(deadline=time.monotonic() - 1).aside(share=0.3).stopped


def test_what_happens_to_the_whole_happens_to_the_part():
    whole = Context()
    part = whole.aside(threads=1)
    assert part.threads == 1
    assert not part.stopped
    whole.interrupted = True
    assert part.stopped
    assert part.termination is Termination.INTERRUPTED
    late = Context(deadline=time.monotonic() + 1000)
    part = late.aside(share=0.5)
    late.deadline = time.monotonic() - 1
    assert part.stopped
    assert part.termination is Termination.TIME_LIMIT


def test_a_part_may_be_over_before_the_whole():
    over = []
    whole = Context()
    part = whole.aside(over=lambda: bool(over))
    assert not part.stopped
    over.append(1)
    assert part.stopped
    assert part.termination is Termination.INTERRUPTED
    own = whole.aside()
    own.interrupted = True
    assert own.stopped
    assert not whole.stopped


def test_listener_hears_of_every_report():
    heard = []
    context = Context(listener=heard.append)
    context.report(STEPS, makespan=9)
    context.report(message="still here", bound=4, scope=ALL_SCHEDULES)
    first, second = heard
    assert (first.makespan, first.bound, first.message) == (9, None, "")
    assert (second.makespan, second.bound, second.message) == (9, 4, "still here")
    assert 0 <= first.seconds <= second.seconds < math.inf


def test_first_interrupt_sets_the_flag_and_the_second_one_raises():
    context = Context()
    with interruptible(context):
        signal.raise_signal(signal.SIGINT)
        assert context.interrupted
        assert context.stopped
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with interruptible(Context()):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(RuntimeError), interruptible(Context()):
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before


def test_nested_scopes_interrupt_the_inner_one():
    outer, inner = Context(), Context()
    with interruptible(outer):
        with interruptible(inner):
            signal.raise_signal(signal.SIGINT)
        assert (outer.interrupted, inner.interrupted) == (False, True)
        signal.raise_signal(signal.SIGINT)
        assert outer.interrupted


def test_other_threads_leave_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with interruptible(Context()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
