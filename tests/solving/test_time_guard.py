"""Test the outer guard of a time limit: it interrupts an overdue solve without side effects."""

import hashlib
import subprocess
import sys
import threading
import time

import pytest

import remat
from remat.plugin import registry
from remat.plugin.proposal import Proposal, Status, Termination
from remat.solving.time_guard import Overrun, guarded
from remat.testing.cases import moderate
from tests.seeds import few

LONG = 30.0
"""Seconds that nothing here takes, if the guard works."""


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "done"


def test_what_returns_in_time_is_not_touched():
    assert guarded(lambda: spin(0.01), time.monotonic() + LONG) == ("done", False)
    assert guarded(lambda: "at once", None) == ("at once", False)


def test_what_does_not_return_is_interrupted():
    assert guarded(lambda: spin(LONG), time.monotonic() + 0.05) == (None, True)


def test_guards_can_be_nested():
    def inner():
        found = guarded(lambda: spin(LONG), time.monotonic() + 0.05)
        return found, spin(0.01)

    assert guarded(inner, time.monotonic() + LONG) == (((None, True), "done"), False)
    assert guarded(lambda: guarded(lambda: spin(LONG), time.monotonic() + LONG), time.monotonic() + 0.05)[1]


def test_no_handler_of_exceptions_swallows_it():
    def stubborn():
        while True:
            try:
                spin(0.01)
            except Exception:
                continue

    assert guarded(stubborn, time.monotonic() + 0.05) == (None, True)


def test_one_that_is_swallowed_comes_again():
    swallowed = []

    def stubborn():
        while len(swallowed) < 3:
            try:
                spin(LONG)
            except Overrun:
                swallowed.append(1)
        spin(LONG)

    assert guarded(stubborn, time.monotonic() + 0.05) == (None, True)
    assert len(swallowed) == 3


def test_errors_of_the_call_are_raised():
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0, time.monotonic() + LONG)


def test_no_exception_arrives_after_the_call():
    """Calls that end just when they would be interrupted leave no exception for what comes after them."""
    for k in range(100):
        _, over = guarded(lambda: spin(0.004), time.monotonic() + 0.004 + (k - 50) * 2e-5)
        assert over in {False, True}
        spin(0.0005)


def test_other_threads_are_not_touched():
    found = []
    thread = threading.Thread(target=lambda: found.append(guarded(lambda: spin(LONG), time.monotonic() + 0.05)))
    thread.start()
    assert guarded(lambda: spin(0.2), time.monotonic() + LONG) == ("done", False)
    thread.join()
    assert found == [(None, True)]


def endless(problem, options, context):
    """Report a schedule, and never return."""
    from remat.plugin import run_in_order

    steps = run_in_order(problem.graph, problem.machine, range(len(problem.graph.tasks)))
    context.report(steps, makespan=problem.no_recompute_time)
    spin(LONG)


@pytest.mark.parametrize("algorithm", ["endless", "auto"])
def test_a_limit_is_kept_by_whoever_does_not_ask(algorithm, monkeypatch):
    entry = registry.Algorithm(
        name="endless",
        solver=f"{__name__}:endless",
        kinds=("taskgraph",),
        summary="never returns",
        guarantee="heuristic",
        cheap=("dag",),
    )
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: (entry,))
    monkeypatch.setattr(registry, "find", lambda name, kind: entry)
    found = remat.solve(moderate("dag"), algorithm=algorithm, time_limit=0.1)
    assert found.status in {Status.FEASIBLE, Status.OPTIMAL}
    assert found.report.ok
    if found.status is Status.FEASIBLE:
        assert found.termination is Termination.TIME_LIMIT


def _reports_and_blocks(problem, options, context):
    """Report a schedule, and then call what must not be interrupted."""
    from remat.plugin import run_in_order

    steps = run_in_order(problem.graph, problem.machine, range(len(problem.graph.tasks)))
    context.report(steps, makespan=problem.no_recompute_time)
    code = compile("while clock() < end: rest(0.01)", "/ortools/busy.py", "exec")
    exec(code, {"clock": time.monotonic, "end": time.monotonic() + 1.5, "rest": time.sleep})
    return Proposal(steps=steps, termination=Termination.TIME_LIMIT)


@pytest.mark.parametrize("algorithm", ["auto", "deaf"])
def test_a_call_that_cannot_be_interrupted_does_not_cost_the_schedule(algorithm, monkeypatch):
    entry = registry.Algorithm(
        name="deaf",
        solver=f"{__name__}:_reports_and_blocks",
        kinds=("taskgraph",),
        summary="blocks",
        guarantee="heuristic",
        several_memories=True,
        trials=(registry.Trial(),),
    )
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: (entry,))
    monkeypatch.setattr(registry, "find", lambda name, kind: entry)
    found = remat.solve(moderate("dag"), algorithm=algorithm, time_limit=0.3)
    assert found.makespan is not None


@pytest.mark.parametrize("times", few(4, 20))
def test_a_thread_that_starts_others_is_interrupted_between_them(times):
    def busy():
        while True:
            threading.Thread(target=lambda: None).start()
            spin(0.01)

    for _ in range(times):
        assert guarded(busy, time.monotonic() + 0.005) == (None, True)


class Slow:
    """An object whose destructor takes long."""

    def __del__(self):
        spin(0.003)


def stored():
    """Destroy one object after the other: in assignments, in calls, at returns."""
    while True:
        one = Slow()
        one = [Slow()]
        (lambda given: None)(Slow())
        spin(0.003)
        one.clear()


def generated():
    """Close unreferenced generators."""

    def generator():
        try:
            yield
        finally:
            spin(0.003)

    while True:
        one = generator()
        next(one)
        one = None
        spin(0.003)


@pytest.mark.parametrize("busy", [stored, generated])
def test_calls_that_python_shields_are_interrupted_later(busy, monkeypatch):
    """An exception in a destructor is printed and lost; such places are left out, and tried again soon after."""
    monkeypatch.setattr(sys, "unraisablehook", lambda about: None)
    for k in range(4):
        started = time.monotonic()
        assert guarded(busy, started + 0.003 * k) == (None, True)


def test_code_that_calls_other_languages_only_is_interrupted():
    def sort():
        numbers = list(range(200_000))
        while True:
            numbers.sort(key=None)

    def digest():
        content = bytes(20_000_000)
        while True:
            hashlib.sha256(content)

    for call in (sort, digest):
        assert guarded(call, time.monotonic() + 0.05) == (None, True)


TRACED = """
import sys, time
from remat.solving.time_guard import _Alarm, _watchdog, guarded

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

sys.settrace(lambda *event: None)
for share in range(40):
    # Interrupted about when the call returns: before, meanwhile, or never.
    guarded(lambda: spin(0.005), time.monotonic() + 0.004 + share * 5e-5)
late = _Alarm(0, None, 0.0)
late.thread, late.fired = __import__("threading").get_ident(), True
_watchdog.forget(late)
spin(0.01)
print("done")
"""


def test_an_exception_that_is_taken_back_leaves_nothing_behind():
    """CPython 3.11 never leaves a function call under a trace function while it looks for an exception in vain."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "done\n"
