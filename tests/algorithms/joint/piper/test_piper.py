"""`piper`: its table against all splits, the published profile, and plans before both judges."""

import gzip
import itertools
import json
import os
import random

import numpy as np
import pytest

import remat
from remat.errors import OptionError
from remat_algorithms.joint.piper import table
from remat_algorithms.joint.piper.table import Rows, Way, best_split
from tests.algorithms.joint.piper.profiles import rows_of
from tests.oracles import referee
from tests.schedule.test_tensor import drawn
from tests.seeds import few, seeds


def random_rows(chance):
    """Return rows of a few layers on a few devices, with a memory limit that binds."""
    count, devices = chance.randint(1, 4), chance.randint(1, 4)
    degrees = [1, *chance.sample([2, 3, 4], chance.randint(0, 2))]
    copies = sorted({1, *chance.sample([2, 3, 4], chance.randint(0, 2))})

    def way():
        return Way(chance.randint(1, 20), chance.randint(0, 9), chance.randint(0, 9))

    ways = {t: [[way() for _ in range(chance.randint(1, 3))] for _ in range(count)] for t in degrees}
    if chance.random() < 0.3:
        ways[degrees[-1]][chance.randrange(count)] = []
    crossing = {
        t: np.array([[chance.randint(0, 9) for _ in range(count + 1)] for _ in range(count + 1)]) for t in degrees
    }
    exchange = {
        (t, d): np.cumsum([0, *(chance.randint(0, 5) * (d - 1) for _ in range(count))]) for t in degrees for d in copies
    }
    return Rows(ways, crossing, exchange, devices, chance.choice([15, 30, 60, 1000]), copies)


def every_split(rows):
    """Yield the stages, from the first on, of all splits: (first, end, t, d)."""
    kinds = [(t, d) for t in rows.ways for d in rows.copies]
    for inner in itertools.product([False, True], repeat=rows.length - 1):
        cuts = [0, *(k + 1 for k, cut in enumerate(inner) if cut), rows.length]
        for chosen in itertools.product(kinds, repeat=len(cuts) - 1):
            if sum(t * d for t, d in chosen) <= rows.devices:
                yield [(*ends, *kind) for ends, kind in zip(itertools.pairwise(cuts), chosen, strict=True)]


def load(rows, stage, flight, ways):
    """Return the load of a stage's devices for a micro-batch, or None if the stage does not fit."""
    first, end, t, d = stage
    if sum(way.held * flight + way.fixed for way in ways) > rows.room:
        return None
    time = sum(way.time for way in ways) + rows.crossing[t][first, end]
    return time / d + rows.exchange[t, d][end] - rows.exchange[t, d][first]


def least(rows):
    """Return the minimum bottleneck load over all splits and all options of all layers."""
    found = []
    for stages in every_split(rows):
        worst = 0
        for k, stage in enumerate(stages):
            first, end, t, d = stage
            flight = -(-sum(other[3] for other in stages[k:]) // d)
            loads = [load(rows, stage, flight, ways) for ways in itertools.product(*rows.ways[t][first:end])]
            worst = max(worst, min((one for one in loads if one is not None), default=np.inf))
        found.append(worst)
    return min(found, default=np.inf)


def compare(number):
    """Compare the table with all splits; the split that it names has the load that it states."""
    rows = random_rows(random.Random(number))
    split, best = best_split(rows), least(rows)
    if split is None:
        assert best == np.inf
        return
    assert split.load == pytest.approx(best, rel=1e-12)
    total, worst = 0, 0
    for part in reversed(split.parts):
        total += part.copies
        assert part.flight == -(-total // part.copies)
        chosen = [rows.ways[part.tensor][part.first + k][way] for k, way in enumerate(part.ways)]
        assert len(chosen) == part.end - part.first
        own = load(rows, (part.first, part.end, part.tensor, part.copies), part.flight, chosen)
        assert own is not None
        worst = max(worst, own)
    assert worst == pytest.approx(split.load, rel=1e-12)
    assert sum(part.tensor * part.copies for part in split.parts) <= rows.devices


@pytest.mark.parametrize("number", seeds(60, 600))
def test_no_split_is_better(number):
    compare(number)


def test_fronts_of_many_points_are_thinned(monkeypatch):
    """Points of a thinned front fit, and none is better than the full front."""
    monkeypatch.setattr(table, "MOST_POINTS", 3)
    chance = random.Random(1)
    ways = {1: [[Way(1, 2**k + chance.randint(0, 3), 0), Way(2**k + 1, 0, 0)] for k in range(8)]}
    rows = Rows(ways, {1: np.zeros((9, 9))}, {(1, 1): np.zeros(9)}, 1, 100, [1])
    thin = best_split(rows)
    assert thin is not None
    assert sum(ways[1][k][way].held for k, way in enumerate(thin.parts[0].ways)) <= 100
    assert thin.load >= least(rows)


@pytest.mark.skipif("REMAT_DATA" not in os.environ, reason="wants the published profile")
@pytest.mark.parametrize(("room", "load"), [(8 * 2**30, 0.16585575), (80e9, 0.122007269)])
def test_load_of_the_published_profile_is_reproduced(room, load):
    """BERT-32 on eight devices, 1920 micro-batches, 25 GiB/s: by the profile's own model, to 1e-9."""
    with gzip.open(os.path.join(os.environ["REMAT_DATA"], "placement", "piper_bert32a100.json.gz")) as file:
        document = json.load(file)
    split = best_split(rows_of(document, devices=8, room=room, bandwidth=25 * 2**30, batches=1920))
    assert split.load == pytest.approx(load, abs=1e-9)


def fast(**more):
    """Return equal layers that two devices run in half the time, and waits that do not matter."""
    work = {"forward_time": 40, "backward_time": 80, "saved_size": 10, "output_size": 2, "parameter_size": 30}
    half = {"forward_time": 20, "backward_time": 40, "saved_size": 5, "output_size": 2, "parameter_size": 15}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 4,
        "layers": [work | {"repeat": 2, "tensor": {"2": half | {"forward_collective_size": 2}}}],
        "cluster": {"devices": [{"name": "g", "count": 4}], "levels": [{"bandwidth": 2}]},
    } | more


def test_groups_where_layers_are_few():
    """Two stages of two devices each: five times F + B of half a layer, the ring of F of 1, and the last transfers."""
    result = remat.solve(fast(), algorithm="piper")
    assert [stage.tensor for stage in result.orders.stages] == [2, 2]
    assert result.makespan <= 5 * (20 + 2 + 40) + 8
    assert result.lower_bound <= result.makespan


def test_the_portfolio_asks_it():
    result = remat.solve(fast(), seed=1)
    assert result.algorithm == "piper"
    assert result.makespan == remat.solve(fast(), algorithm="piper").makespan


def test_copies_and_groups_together():
    """Two copies of all layers, each on a group of two: no transfers, and an exchange."""
    document = fast(copies=2, exchange="ring", cluster=fast()["cluster"] | {"levels": [{"bandwidth": 2, "latency": 9}]})
    result = remat.solve(document, algorithm="piper")
    assert [(stage.tensor, len(stage.layers)) for stage in result.orders.stages] in ([(2, 2)] * 2, [(1, 1)] * 4)
    one = document | {"layers": [layer | {"repeat": 1} for layer in document["layers"]], "micro_batches": 2}
    result = remat.solve(one, algorithm="piper")
    report, verdict = remat.verify(one, result.to_dict()), referee.check(one, result.to_dict())
    assert report.makespan == verdict.makespan == result.makespan
    assert report.peak_memory == verdict.peaks


def test_what_does_not_fit_runs_again():
    document = fast(cluster={"devices": [{"name": "g", "count": 1}]})
    document["layers"][0]["repeat"] = 4
    whole = remat.solve(document, algorithm="piper")
    result = remat.solve(document, algorithm="piper", budget=whole.peak_memory["g"] - 15)
    assert result.makespan == whole.makespan + 4 * 2 * 40
    assert max(result.peak_memory.values()) <= whole.peak_memory["g"] - 15
    never = remat.solve(document, algorithm="piper", budget=whole.peak_memory["g"] - 15, options={"recompute": False})
    assert never.makespan is None


def judge(number):
    """Put the plan of a drawn instance before both judges."""
    chance = random.Random(number)
    document = drawn(chance) | {"copies": chance.choice([1, 2, 4]), "exchange": chance.choice(["none", "ring"])}
    document["cluster"]["devices"][0]["count"] = chance.choice([2, 4, 6])
    document["cluster"]["levels"] = document["cluster"]["levels"][-1:]
    for layer in document["layers"]:
        layer["forward_time"] += 20 * chance.randint(0, 2)
        layer["tensor"]["2"] |= {f"{phase}_collective_size": chance.randint(0, 2) for phase in ("forward", "backward")}
        for key in chance.sample(["2", "3"], chance.choice([0, 0, 1, 2])):
            del layer["tensor"][key]
    result = remat.solve(document, algorithm="piper", options={"recompute": False})
    report, verdict = remat.verify(document, result.to_dict()), referee.check(document, result.to_dict())
    assert report.ok
    assert report.makespan == verdict.makespan == result.makespan
    assert report.peak_memory == verdict.peaks
    most = max(result.peak_memory.values())
    again = remat.solve(document, algorithm="piper", budget=chance.randint(most // 2, most))
    assert again.makespan is None or again.report.ok
    return any(stage.tensor > 1 for stage in result.orders.stages)


@pytest.mark.parametrize("count", few(4, 12))
def test_plans_before_both_judges(count):
    """In at least some draws, the plan has groups."""
    assert sum(judge(number) for number in range(count)) >= count // 4


def test_groups_over_levels():
    """Copies that would lie on unlike groups are placed the larger groups first."""
    level = [{"devices": 2, "bandwidth": 100}, {"bandwidth": 1}]
    layer = fast()["layers"][0]
    alone = {"forward_time": 60, "backward_time": 120, "output_size": 1}
    document = fast(
        copies=2,
        micro_batches=8,
        layers=[alone, layer | {"repeat": 1, "output_size": 0}],
        cluster={"devices": [{"name": "g", "count": 6}], "levels": level},
    )
    result = remat.solve(document, algorithm="piper")
    assert result.report.ok
    assert {stage.device % 2 for stage in result.orders.stages if stage.tensor == 2} <= {0}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cluster": {"devices": [{"name": "a"}, {"name": "b"}]}}, "devices of one type"),
        (
            {
                "cluster": {"devices": [{"name": "a", "count": 256}]},
                "layers": [{"forward_time": 1, "backward_time": 1, "repeat": 600}],
            },
            "are the most",
        ),
        ({"weights": "stash", "layers": [{"forward_time": 1, "backward_time": 1}]}, "weights flush"),
    ],
)
def test_unsupported_instances_are_refused(change, why):
    with pytest.raises(OptionError, match=why):
        remat.solve(fast(**change), algorithm="piper")
