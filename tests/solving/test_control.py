"""Stopping of solves, and their side effects: signals, output, other threads and processes."""

import asyncio
import multiprocessing
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

import remat
from remat.generate import generate
from tests.algorithms.chain.rotor.test_rotor import draw_chain
from tests.algorithms.dag.test_first_schedule import chain, graph
from tests.solving.questions.test_prepared import figures

INTERRUPTED = remat.Termination.INTERRUPTED
LONG = {"algorithm": "dag-auto", "budget": "60%", "time_limit": 60}
"""A solve that takes a minute unless it is stopped."""


@cache
def long_instance():
    return remat.load(graph(random.Random(1), 60))


def test_progress_that_returns_false_stops_the_solve():
    told = []
    result = remat.solve(long_instance(), **LONG, progress=lambda event: told.append(event) or event.makespan is None)
    assert result.termination is INTERRUPTED
    assert result.makespan is not None
    assert result.report.ok
    assert [event for event in told if event.makespan is not None] == told[-1:]


@pytest.mark.parametrize("algorithm", ["dag-auto", "checkmate"])
def test_progress_that_returns_nothing_goes_on(algorithm):
    instance = remat.load(dict(generate("dag", "layered", nodes=8, seed=1)))
    heard = []
    result = remat.solve(instance, algorithm=algorithm, budget="90%", progress=heard.append)
    assert result.termination is not INTERRUPTED
    assert figures(result) == figures(remat.solve(instance, algorithm=algorithm, budget="90%"))


def test_a_switch_stops_solves_from_another_thread():
    cancel, running = remat.Cancel(), threading.Event()

    def stop():
        running.wait(60)
        cancel.set()

    thread = threading.Thread(target=stop)
    thread.start()
    result = remat.solve(long_instance(), **LONG, cancel=cancel, progress=lambda event: running.set())
    thread.join()
    assert cancel.is_set
    assert result.termination is INTERRUPTED
    assert result.makespan is not None
    assert remat.solve(long_instance(), **LONG, cancel=cancel).termination is INTERRUPTED  # and all that come later


@pytest.mark.parametrize("ask", ["least_budget", "sweep", "largest_batch", "prepared"])
def test_a_switch_stops_questions(ask):
    cancel = remat.Cancel()
    threading.Timer(0.1, cancel.set).start()
    more = {"algorithm": "dag-auto", "time_limit": 60, "cancel": cancel}
    if ask == "sweep":
        curve = remat.sweep(long_instance(), more.pop("algorithm"), **more).curves[0]
        assert curve.termination is INTERRUPTED
    elif ask == "prepared":
        prepared = remat.prepare(long_instance(), algorithm=more.pop("algorithm"))
        assert prepared.solve("60%", **more).termination is INTERRUPTED
    elif ask == "least_budget":
        assert remat.least_budget(long_instance(), **more).termination is INTERRUPTED
    else:
        assert remat.largest_batch(long_instance(), budget=10**6, **more).termination is INTERRUPTED


def test_an_algorithm_that_never_looks_is_interrupted(monkeypatch):
    from remat_algorithms.chain import strategies

    cancel = remat.Cancel()

    def busy(problem, options, context):
        cancel.set()
        while True:
            sum(range(100))

    monkeypatch.setattr(strategies, "solve_periodic", busy)
    result = remat.solve(draw_chain(1, 5), algorithm="periodic", cancel=cancel)
    assert (result.status, result.termination) == (remat.Status.UNKNOWN, INTERRUPTED)


def test_a_task_waits_for_its_solve_or_cancels_it():
    async def wait():
        return await remat.solve_async(draw_chain(2, 6), algorithm="rotor", budget="80%")

    assert figures(asyncio.run(wait())) == figures(remat.solve(draw_chain(2, 6), algorithm="rotor", budget="80%"))
    ended = []

    async def give_up():
        running = asyncio.Event()
        loop = asyncio.get_running_loop()
        call = remat.solve_async(
            long_instance(),
            **LONG,
            progress=lambda event: loop.call_soon_threadsafe(running.set) and ended.append(event),
        )
        task = asyncio.create_task(call)
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return threading.active_count()

    asyncio.run(give_up())
    known = len(ended)
    time.sleep(0.05)
    assert len(ended) == known  # the thread has ended with the task

    async def stop():
        cancel = remat.Cancel()
        task = asyncio.create_task(remat.solve_async(long_instance(), **LONG, cancel=cancel))
        await asyncio.sleep(0.05)
        cancel.set()
        return await task

    assert asyncio.run(stop()).termination is INTERRUPTED


CALLS = [
    ("chain", "rotor"),
    ("chain", "chain-best"),
    ("chain", "periodic"),
    ("dag", "dag-order-greedy"),
    ("tree", "liu"),
]


def documents():
    return {
        "chain": draw_chain(3, 6),
        "dag": dict(generate("dag", "layered", nodes=10, seed=2)),
        "tree": dict(generate("tree", "random", nodes=20, seed=2)),
    }


def all_answers(budgets):
    """Answer five questions for each budget; the figures and the steps."""
    found, given = [], documents()
    for kind, algorithm in CALLS:
        for budget in budgets:
            result = remat.solve(given[kind], algorithm=algorithm, budget=budget, seed=3)
            steps = None if result.columns is None else result.columns.item.tolist()
            found.append((figures(result), steps))
    return found


# Slow: two hundred solves in threads, and as many in processes.
BUDGETS = [("90%", "70%"), pytest.param(("100%", "90%", "80%", "70%", "60%"), marks=pytest.mark.slow)]


@pytest.mark.parametrize("budgets", BUDGETS, ids=len)
def test_eight_threads_agree(budgets):
    expected = all_answers(budgets)
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected for found in pool.map(all_answers, [budgets] * 8))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("budgets", BUDGETS, ids=len)
def test_four_forked_workers_agree(budgets):
    expected = all_answers(budgets)
    remat.solve(draw_chain(1, 3), algorithm="rotor", time_limit=5)  # a thread that waits for limits stays behind
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(found == expected for found in pool.map(all_answers, [budgets] * (8 if len(budgets) > 2 else 4)))


def test_solves_write_nothing(capfd):
    assert remat.solve(draw_chain(3, 6), budget="80%").makespan is not None
    assert remat.solve(documents()["dag"], budget="80%", algorithm="checkmate").makespan is not None
    assert capfd.readouterr() == ("", "")


LOOKED_AT = {
    "dag": ["auto", "ap-greedy", "checkmate", "checkmate-lp", "dag-auto", "dag-offload-best", "dtr", "hiremate",
            "knapsack-dp",
            "knapsack-greedy", "knapsack-ilp", "kusumoto-approx", "kusumoto-exact", "linearized-greedy", "min-cut",
            "moccasin", "poet", "treewidth"],
    "chain": ["auto", "chain-best", "chain-exact", "pofo", "remat-offload-best", "rotor", "rotor-float"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "algorithm"), [(kind, name) for kind, names in LOOKED_AT.items() for name in names])
def test_cancelling_takes_a_fifth_of_a_second(kind, algorithm):
    """CPU seconds of the process from the switch to the verified answer."""
    document, budget = {"dag": (graph(random.Random(1), 600), "40%"), "chain": (chain(random.Random(1), 400), "30%")}[
        kind
    ]
    instance, cancel, at = remat.load(document), remat.Cancel(), []

    def stop():
        at.append(time.process_time())
        cancel.set()

    timer = threading.Timer(0.5, stop)
    timer.start()
    result = remat.solve(instance, algorithm=algorithm, budget=budget, cancel=cancel, time_limit=60)
    taken = time.process_time() - at[0]
    assert result.termination is INTERRUPTED
    assert taken <= 0.2


@pytest.mark.parametrize("cancel", [True, 3, threading.Event()])
def test_only_a_cancel_cancels(cancel):
    with pytest.raises(remat.OptionError, match=r"expected a remat\.Cancel, not"):
        remat.solve(remat.chain(forward_time=[1], backward_time=1, output_size=1), cancel=cancel)
