"""Results to render."""

import remat
from remat.placement import place
from remat.plugin.proposal import Status, Termination
from remat.solving.result import Result
from remat.verifier import check
from tests.verifier.judges import Case


def result_of(document, steps, *, name="example", algorithm="by hand"):
    """Place and verify a plain list of steps; return it as a result."""
    case = Case(document)
    columns = case.columns(steps)
    columns = columns.placed(place(case.graph, case.machine, columns).start)
    report = check(case.graph, case.machine, columns)
    assert report.ok, report.violations
    return Result(
        instance_name=name,
        instance=None,
        graph=case.graph,
        machine=case.machine,
        units=case.units,
        algorithm=algorithm,
        options={},
        seed=0,
        status=Status.FEASIBLE,
        termination=Termination.COMPLETED,
        columns=columns,
        report=report,
        lower_bound=0,
        no_recompute_time=report.run_time - report.recompute_time,
    )


CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "three stages",
    "units": {"time": "ms", "memory": "B"},
    "input_size": 2**20,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 2**20, "saved_size": 2**19}] * 3,
    "loss": {"time": 1},
}

OFFLOAD = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "machine": {
        "memories": [{"name": "device", "capacity": 10}, {"name": "host", "capacity": 1000}, {"name": "disk"}],
        "processors": [{"name": "gpu", "memory": "device", "count": 2}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 2, "channel": "bus"},
            {"source": "host", "target": "device", "bandwidth": 2, "channel": "bus"},
        ],
    },
    "values": [{"id": "u", "size": 4}, {"id": "v", "size": 3}],
    "tasks": [
        {"id": "a", "time": 2, "writes": ["u"], "phase": "forward"},
        {"id": "b", "time": 6, "reads": ["u"], "writes": ["v"], "phase": "backward", "parallel": {"max": 2}},
        {"id": "flash", "time": 0, "writes": [], "workspace": 3, "required": False},
    ],
}
MOVES = [
    {"run": "a"},
    {"copy": "u", "from": "device", "to": "host", "drop": True},
    {"run": "a", "on": ["gpu1"]},
    {"run": "b", "on": ["gpu0", "gpu1"], "drop": ["u"]},
    {"run": "flash"},
    {"drop": ["v"], "memory": "device"},
    {"copy": "u", "from": "host", "to": "device", "bytes": 1, "drop": True},
]


def chain_result():
    """A chain that must recompute."""
    return remat.solve(CHAIN, algorithm="rotor", budget="6MiB")


def offload_result():
    """Copies, two processors, three memories, a step of no length."""
    return result_of(OFFLOAD, MOVES, name="a <b> & $c$ \n é漢")


def long_result(runs=30_000):
    """A schedule of many short steps with one of no length that sets the peak."""
    document = OFFLOAD | {
        "machine": {"memories": [{"name": "device"}], "processors": [{"name": "gpu", "memory": "device"}]}
    }
    steps = [{"run": "a"}] + [{"run": "b"}, {"run": "a"}] * (runs // 2)
    steps.insert(runs // 3, {"run": "flash"})
    return result_of(document, steps)
