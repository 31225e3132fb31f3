"""The energy that the verifier reports: of drawn plans on several devices, of partial moves, of huge figures."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.testing.strategies import dags
from tests.oracles.energies import energy_of
from tests.verifier.device_plans import able
from tests.verifier.test_dag_devices import drawn

DRAWN = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def with_energies(chance, document):
    """Give tasks and links energies, those of some tasks by the type of the processor."""

    def figure():
        return chance.choice([0, chance.randint(1, 9), 0.1 * chance.randint(1, 9), 2 ** chance.randint(0, 62)])

    tasks = []
    for task in document["tasks"]:
        kinds = sorted({one.get("type", "") for one in able(document, task)})
        energy = figure()
        if "" not in kinds and "parts" not in task and chance.random() < 0.5:
            energy = {kind: figure() for kind in kinds}
        tasks.append(task | ({} if chance.random() < 0.2 else {"energy": energy}))
    links = [link | ({"energy": figure()} if chance.random() < 0.7 else {}) for link in document["machine"]["links"]]
    return document | {"tasks": tasks, "machine": document["machine"] | {"links": links}}


def gives_energy(document):
    """Whether some task or link of a document has an energy that is not 0, by type or not."""
    found = [entry.get("energy", 0) for entry in (*document["tasks"], *document["machine"]["links"])]
    return any(isinstance(energy, dict) or energy for energy in found)


@settings(DRAWN, max_examples=25)
@given(document=dags(largest=4, exact=True), number=st.integers(0, 2**32 - 1))
def test_energies_of_drawn_plans(document, number):
    chance, document, plan = drawn(document, number)
    before = remat.verify(document, plan)
    document = with_energies(chance, document)
    report = remat.verify(document, plan)
    assert report.ok
    assert before.energy is None
    assert (report.makespan, report.peak_memory) == (before.makespan, before.peak_memory)
    expected = energy_of(document, plan["steps"])
    if not gives_energy(document):
        assert report.energy is None
    elif isinstance(report.energy, int):
        assert report.energy == expected
    else:
        assert report.energy == pytest.approx(float(expected), rel=1e-12)


LINKS = [{"source": "m", "target": "n", "energy": 2}, {"source": "n", "target": "m", "energy": 0.25}]
PAGED = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "machine": {
        "memories": [{"name": "m"}, {"name": "n"}],
        "processors": [{"name": "p", "memory": "m"}],
        "links": LINKS,
    },
    "tasks": [
        {"id": "a", "time": 2, "energy": 3, "size": 8},
        {"id": "b", "time": 1, "energy": 7, "reads": ["a"], "size": 1},
    ],
}


def test_parts_of_values_and_repeated_runs():
    steps = [
        {"run": "a"},
        {"copy": "a", "from": "m", "to": "n", "bytes": 3, "drop": True},
        {"copy": "a", "from": "n", "to": "m", "bytes": 3, "drop": True},
        {"run": "b", "drop": ["a"]},
        {"run": "a"},
    ]
    report = remat.verify(PAGED, {"schema": "remat.schedule/1", "steps": steps})
    assert report.ok
    assert report.energy == 3 + 3 + 7 + 3 * 2 + 3 * 0.25


def test_whole_energies_add_up_exactly():
    document = PAGED | {"tasks": [{"id": f"t{k}", "time": 1, "energy": 2**62 - k, "size": 2**40} for k in range(9)]}
    document["machine"] = document["machine"] | {"links": [LINKS[0] | {"energy": 2**61 + 1}, LINKS[1] | {"energy": 1}]}
    steps = [*({"run": f"t{k}"} for k in range(9)), {"copy": "t0", "from": "m", "to": "n"}]
    report = remat.verify(document, {"schema": "remat.schedule/1", "steps": steps})
    assert report.energy == 9 * 2**62 - 36 + 2**40 * (2**61 + 1) == energy_of(document, steps)


def test_fractions_do_not_depend_on_the_order():
    energies = [0.1, 1e15, 0.7, 3e-9, 0.3]
    reports = []
    for order in (energies, energies[::-1]):
        tasks = [{"id": f"t{k}", "time": 1, "energy": energy, "size": 1} for k, energy in enumerate(order)]
        steps = [{"run": task["id"]} for task in tasks]
        reports.append(remat.verify(PAGED | {"tasks": tasks}, {"schema": "remat.schedule/1", "steps": steps}).energy)
    assert reports[0] == reports[1] == float(sum(map(Fraction, energies)))


def test_a_broken_schedule_has_an_energy_too():
    report = remat.verify(PAGED, {"schema": "remat.schedule/1", "steps": [{"run": "b"}, {"run": "nobody"}]})
    assert not report.ok
    assert report.energy in (0, 7)


def test_other_kinds_have_the_energy_of_their_transfers():
    chain = {
        "schema": "remat.instance/3",
        "kind": "chain",
        "input_size": 4,
        "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 4, "saved_size": 4}] * 4,
        "machine": PAGED["machine"],
    }
    result = remat.solve(chain, algorithm="vdnn-all")
    moved = result.report.transferred
    assert moved["m->n"] > 0
    assert result.energy == 2 * moved["m->n"] + 0.25 * moved["n->m"]


def test_a_stream_has_the_energy_of_the_samples_that_are_checked():
    machine = PAGED["machine"] | {
        "processors": [{"name": "p", "memory": "m"}, {"name": "q", "memory": "n"}],
        "links": [link | {"bandwidth": 1, "energy": 2} for link in LINKS],
    }
    tasks = [
        {"id": "a", "time": 2, "energy": 5, "size": 1},
        {"id": "b", "time": 2, "energy": 7, "reads": ["a"], "size": 1},
    ]
    result = remat.solve(PAGED | {"machine": machine, "tasks": tasks, "stream": 3}, algorithm="tarnawski-dp")
    assert sum(result.report.transferred.values()) == 3
    assert result.energy == 3 * (5 + 7) + 3 * 2
