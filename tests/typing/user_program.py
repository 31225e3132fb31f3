"""A typed program of a user: mypy --strict and pyright accept it, and it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, assert_type

import networkx
import numpy as np

import remat


def build() -> list[remat.Instance]:
    """Build each kind."""
    times = np.array([3.0, 1.0, 2.0])
    chain = assert_type(
        remat.chain(
            forward_time=times, backward_time=2, output_size="4MB", input_size=2**20, machine=remat.device("1GB")
        ),
        remat.ChainInstance,
    )
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_node("a", seconds=1.0, size=4)
    graph.add_node("b", seconds=2.0, size=4)
    graph.add_edge("a", "b")
    dag = assert_type(remat.dag(graph, time="seconds", size="size", outputs=["b"]), remat.DagInstance)
    same = remat.dag(reads=[[], [0]], writes=[[0], [1]], time=[1, 2], size=[4, 4], outputs=[1])
    tree = assert_type(remat.tree([-1, 0, 0], output_size=[3, 2, 1]), remat.TreeInstance)
    loop = assert_type(remat.adjoint(10, storage=[{"name": "ram", "slots": 3}]), remat.AdjointInstance)
    join = assert_type(
        remat.join([{"forward_time": [1, 2], "backward_time": 2, "output_size": 3, "input_size": 1}] * 2),
        remat.JoinInstance,
    )
    pipeline = assert_type(
        remat.pipeline(
            forward_time=times, backward_time=2, output_size=1, devices=2, memory="1GB", link="1GB/s", micro_batches=2
        ),
        remat.PipelineInstance,
    )
    return [chain, dag, same, tree, loop, join, pipeline]


def solve(instance: remat.Instance) -> tuple[float | None, Mapping[str, int]]:
    """Solve for several budgets, and read the answer."""
    prepared = assert_type(remat.prepare(instance, algorithm="auto"), remat.Prepared)
    cancel = remat.Cancel()

    def told(event: remat.Progress) -> bool:
        return event.makespan is None or not cancel.is_set

    result = assert_type(prepared.solve(0.9, time_limit="5s", gap="1%", progress=told, cancel=cancel), remat.Result)
    if result.status in (remat.Status.OPTIMAL, remat.Status.FEASIBLE):
        assert result.termination is not remat.Termination.INTERRUPTED
    rows: Sequence[remat.Decision] = result.decisions
    names: list[str] = [row.value for row in rows if row.decision == "recomputed"]
    stages: Sequence[remat.StageDecision] = result.stage_decisions
    again: dict[int, int] = {row.stage: row.runs for row in stages if row.recomputed}
    order: tuple[str, ...] = result.order
    columns: Mapping[str, Any] = result.timeline()
    assert len(columns["kind"]) >= len(order) >= len(names) >= 0
    assert all(runs > 1 for runs in again.values())
    report: remat.Report | None = result.report
    assert report is None or report.ok
    return result.makespan, result.peak_memory


def ask(instance: remat.Instance) -> None:
    """Ask questions that take many solves."""
    curve = assert_type(remat.prepare(instance, algorithm="rotor").curve([0.7, 0.9]), remat.Curve)
    points: Sequence[remat.Point] = curve.answers
    assert len(points) == 2
    least = assert_type(remat.least_budget(instance, algorithm="rotor", max_overhead="20%"), remat.Result)
    assert least.answer is not None
    sweep = assert_type(remat.sweep(instance, ["rotor", "periodic"], budgets=["80%"]), remat.Sweep)
    assert len(sweep.curves) == 2
    batch: remat.Result = remat.largest_batch(instance, budget="1GB", algorithm="rotor")
    assert batch.answer is not None
    try:
        remat.solve(instance, budget=1.5)
    except remat.OptionError as error:
        refused: remat.RematError = error
        del refused


def read(join: remat.Instance) -> int:
    """Read decisions, peaks and times."""
    machine: dict[str, Any] = remat.machine(
        memories={"device": "1GB", "host": None},
        processors={"gpu": "device"},
        links={("device", "host"): "25GB/s", ("host", "device"): {"bandwidth": "25GB/s", "latency": "10us"}},
    )
    result = remat.solve(join, machine=machine)
    decisions = assert_type(result.decisions, remat.Decisions)
    first = assert_type(decisions[0], remat.Decision)
    named: remat.Decision = decisions[first.value]
    waits: list[tuple[str, float, float]] = [(stay.memory, stay.start, stay.end) for stay in named.offloaded]
    stages = assert_type(result.stage_decisions, remat.StageDecisions)
    numbers: list[tuple[int | None, int, int | None]] = [(row.chain, row.stage, row.variant) for row in stages]
    records: list[dict[str, Any]] = stages.to_dicts()
    peak = result.peak
    assert peak is not None
    assert peak.held
    assert len(result.to_networkx()) == len(result.graph.tasks)
    again: remat.Result = remat.schedule_of(join, result.order, machine=machine)
    addresses: remat.Addresses = remat.layout(again)
    facts: remat.Facts = remat.show(join)
    del facts, addresses
    short = remat.solve(join, budget=1).shortfall
    assert short is not None
    assert short.need > 1
    listed: Sequence[remat.Algorithm] = remat.algorithms(kind="join")
    return len(waits) + len(numbers) + len(records) + len(listed)


def devices() -> tuple[bool, float]:
    """Assign tasks to processors, verify steps, and read a saved schedule."""
    machine = remat.machine(
        memories={"big": "16GB", "small": {"capacity": "4GB", "static": "1GB"}},
        processors={"gpu0": {"memory": "big", "type": "a100"}, "gpu1": {"memory": "small", "type": "t4"}},
        links={("big", "small"): "12GB/s", ("small", "big"): "12GB/s"},
    )
    graph = remat.dag(
        reads=[[], ["x"]],
        writes=[["x"], ["y"]],
        size={"x": "20MB", "y": 4},
        time={"a100": [1, 2], "t4": np.array([3, 4])},
        on=["gpu0", None],
        origin=[{"module": "stem"}, None],
        outputs=["y"],
        machine=machine,
    )
    steps: list[dict[str, Any]] = [{"run": "t0", "on": ["gpu0"]}, {"run": "t1", "on": ["gpu0"], "drop": ["x"]}]
    report = assert_type(remat.verify(graph, steps), remat.Report)
    saved = assert_type(remat.schedule_of(graph, steps), remat.Result)
    assert saved.makespan is not None
    mine = next(one for one in remat.algorithms("dag") if one.name == "keep-all")
    plain = remat.chain(forward_time=[1, 2], backward_time=2, output_size=4)
    found: remat.Result = remat.solve(plain, algorithm=mine, warm_start=[{"run": "F1"}] if not report.ok else None)
    curves: tuple[remat.Curve, ...] = remat.sweep(plain, [mine, "rotor"], budgets=[0.9]).curves
    assert found.makespan is not None
    return report.ok, saved.makespan + len(curves)


def stream(loop: remat.Instance) -> int:
    """Stream a time loop, prepare it, and ask for its smallest budget."""
    steps = assert_type(remat.stream(loop), remat.Stream)
    prepared = remat.prepare(loop, algorithm="revolve")
    least = assert_type(prepared.least_budget(), remat.Result)
    assert least.answer is not None
    assert least.answer.value is not None
    return sum(1 for _ in steps)


async def wait(instance: remat.Instance) -> remat.Result:
    """Solve in a thread."""
    return assert_type(await remat.solve_async(instance, algorithm="rotor", budget="90%"), remat.Result)


def main() -> None:
    """Run all of it."""
    instances = build()
    assert devices() == (True, 5.0)
    for instance in instances[:4]:
        solve(instance)
    ask(instances[0])
    assert read(instances[5])
    assert stream(instances[4])
    assert asyncio.run(wait(instances[0])).makespan is not None


if __name__ == "__main__":
    main()
