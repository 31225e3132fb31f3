"""Algorithms accept the peak of their own schedule as the budget: drawn instances on which they once did not."""

import copy

import pytest

import remat
from remat.plugin.problem import budget_memory
from remat.testing.checks import own_peak
from remat_algorithms.parallel.pipeline import period_search
from remat_algorithms.parallel.pipeline.period_program import Asked

LINKS = [
    {"source": "device", "target": "host", "channel": "bus"},
    {"source": "host", "target": "device", "bandwidth": 0.5, "channel": "bus"},
]
HOSTED = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "input_size": 2000,
    "stages": [
        {"forward_time": 42, "backward_time": 21, "output_size": 5000, "saved_size": 2000, "saving_workspace": 4000},
        {"forward_time": 35, "backward_time": 0, "output_size": 3000, "saved_size": 0},
    ],
    "machine": {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": LINKS,
    },
    "loss": {"time": 21, "workspace": 4000},
    "input_gradient": False,
}
DELAYED = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "layers": [
        {"forward_time": 0.0, "backward_time": 0.0, "saved_size": 2, "parameter_size": 6},
        {
            "forward_time": 0.0,
            "backward_time": 640728839.4890192,
            "saved_size": 6,
            "output_size": 5,
            "backward_workspace": 3,
            "gradient_size": 4,
        },
    ],
    "micro_batches": 4,
    "cluster": {"devices": [{"name": "gpu", "count": 2, "memory": 21}], "levels": [{"delay": 1.0}]},
    "weights": "predicted",
}
LARGE = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "layers": [
        {
            "forward_time": 5.9499267154888024e-09,
            "backward_time": 1.0,
            "saved_size": 9,
            "parameter_size": 1,
            "output_size": 4503599627370500,
            "discrepancy_size": 4503599627370507,
        },
        {
            "forward_time": 2285.5130725544263,
            "backward_time": 0.0,
            "saved_size": 5629499534213127,
            "parameter_size": 4503599627370505,
        },
    ],
    "micro_batches": 1,
    "cluster": {"devices": [{"name": "gpu", "count": 2}], "levels": [{"delay": 0.0}]},
    "weights": "single",
}
CHAIN = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "input_size": 5,
    "stages": [
        {"forward_time": time, "backward_time": 2, "output_size": size, "saved_size": size + 2, "backward_workspace": 9}
        for time, size in ((3, 4), (1, 9), (5, 2), (2, 7), (4, 1), (6, 3))
    ],
}
CASES = [
    *((HOSTED, name) for name in ("vdnn-all", "vdnn-pp")),
    *((document, name) for document in (DELAYED, LARGE) for name in ("1f1b-star", "madpipe")),
    (CHAIN, "revolve-chain"),
]


@pytest.mark.parametrize(("document", "algorithm"), CASES)
def test_the_peak_of_a_schedule_is_enough(document, algorithm):
    def solved(budget):
        return remat.solve(copy.deepcopy(document), algorithm=algorithm, budget=budget)

    free = solved(None)
    memory = budget_memory(free.instance, free.machine)
    budgets = [None]
    if document["kind"] != "pipeline":
        peak = own_peak(free, memory)
        budgets += [peak * share // 20 for share in range(4, 20, 3)]
    for budget in budgets:
        found = solved(budget)
        if found.columns is not None:
            again = solved(own_peak(found, memory))
            assert again.makespan is not None
            assert again.makespan <= found.makespan * (1 + 1e-9)


def test_long_whole_times_are_floats_in_the_search():
    layer = {"forward_time": 2**61, "backward_time": 2**61, "output_size": 3, "saved_size": 5, "parameter_size": 4}
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "layers": [layer] * 12,
        "micro_batches": 4,
        "cluster": {"devices": [{"name": "gpu", "count": 2}], "host": {"bandwidth": 1}},
    }
    result = remat.solve(document, algorithm="pipe-plan", budget=120, options={"moves": 2})
    assert result.report.ok
    assert result.makespan >= 4 * 12 * 2**61  # half of the work on each of two devices


@pytest.mark.parametrize(
    ("whole", "is_refuted", "most"), [(False, True, 17), (False, False, 17), (True, False, 19), (True, True, 24)]
)
def test_the_bisection_of_long_periods_ends(monkeypatch, whole, is_refuted, most):
    """Only where each program gives an answer and times are whole, it goes on to the last step."""

    class Blocks:
        parts = (None,)

    Blocks.whole = whole
    asked = Asked(Blocks, (), 1, work=1.0, seed=0)
    tried = []
    monkeypatch.setattr(
        period_search, "_fitting", lambda asked, period, stop: (tried.append(period), (None, is_refuted))[1]
    )
    least = period_search.least_period(asked, 1, 10**7, lambda: False)
    assert len(tried) <= most
    assert 10**7 - tried[-1] < 10**7 / 2**15
    assert (least.refuted == 10**7) == (whole and is_refuted)
    tried.clear()
    period_search.least_period(asked, 1, 500, lambda: False)
    assert tried[-1] == 500
