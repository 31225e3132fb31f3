"""The context: deadline, seed, incumbents, progress, interruption."""

import math
import signal
import threading
import time

import numpy as np
import pytest

from remat.plugin.context import Context, interruptible
from remat.plugin.proposal import Termination
from remat.schedule.steps import Steps

STEPS = Steps.of_runs(np.array([0, 1]))


def test_without_limits():
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


def test_seed():
    def draw(seed):
        generator = Context(seed=seed).random()
        return [generator.random() for _ in range(3)]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_report_keeps_the_latest_incumbent_and_the_best_bound():
    context = Context()
    context.report(STEPS, makespan=9, bound=3)
    context.report(bound=2)
    assert (context.best_steps, context.best_makespan, context.best_bound) == (STEPS, 9, 3)
    better = Steps.of_runs(np.array([1]))
    context.report(better, makespan=8, bound=5)
    assert (context.best_steps, context.best_makespan, context.best_bound) == (better, 8, 5)


def test_listener_hears_of_every_report():
    heard = []
    context = Context(listener=heard.append)
    context.report(STEPS, makespan=9)
    context.report(message="still here", bound=4)
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
