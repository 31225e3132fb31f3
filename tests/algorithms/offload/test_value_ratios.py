"""Values with a compression ratio of their own: by hand, before both judges, and against exhaustive search."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

import remat
from remat.instance import digest
from tests.algorithms.offload.machines import two_memories
from tests.algorithms.offload.timelines import FIVE, starts, timeline
from tests.oracles import offloading, referee
from tests.seeds import seeds

# FIVE on 2 bytes a unit of time out, 1 back, and a codec of 4: a byte of ratio r takes r/2 + 1/4 out, r + 1/4 back.
#
#           x0     x1     x2     x3     x4
# bytes     4      6      6      2      3
# ratio     .5     .25    1      link   link, whose ratio is .5
# out       2      2.25   4.5    1      1.5
# back      3      3      7.5    1.5    2.25
#
# vdnn-pp: the channel out is busy 0-2, 2-4.25, 4.25-8.75, 8.75-9.75, 9.75-11.25; x4 then comes back until 13.5. Each
# backward waits for the value that is fetched while the run before it goes on.
PP = """
    0     Fe1, x0 out
    2     Fe2, x1 out
    3     Fe3
    4.25  x2 out
    6     Fe4
    7     Fe5
    8.75  x3 out
    9     loss
    9.75  x4 out
    11.25 x4 back
    13.5  B5, x3 back
    18.5  B4, x2 back
    26    B3, x1 back
    32    B2, x0 back
    35    B1
"""

FROM_ALL = (
    *("offload-greedy", "offload-exact", "dag-offload-best", "poet", "auto"),
    *("tflms", "autoswap", "capuchin", "superneurons", "swapadvisor"),
)
FROM_CHAINS = ("vdnn-all", "vdnn-pp", "vdnn-dyn", "pofo", "offload-dp", "remat-offload-best")


def five() -> dict[str, Any]:
    stages = [dict(stage) for stage in FIVE["stages"]]
    stages[0]["output_ratio"], stages[1]["output_ratio"] = 0.25, 1
    machine = two_memories(2, 1, ratio=0.5, codec=4)
    return FIVE | {"schema": "remat.instance/3", "input_ratio": 0.5, "stages": stages, "machine": machine}


def test_timeline_of_vdnn_pp() -> None:
    document = five()
    result = remat.solve(document, algorithm="vdnn-pp")
    assert starts(result) == timeline(PP)
    assert result.makespan == 39
    assert result.report is not None
    assert result.report.transferred == {"device->host": 21, "host->device": 21}  # values are stored as they are
    verdict = referee.check(document, result.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.makespan == 39


def test_what_must_cross_is_bounded_by_its_own_ratio() -> None:
    """64 bytes at the host, of which 16 are sent at 2 per unit of time: 8, and not the 32 of the link's ratio."""
    tasks = [{"id": "t", "time": 1, "reads": ["w"], "writes": ["y"]}]
    values = [{"id": "w", "size": 64, "ratio": 0.25}, {"id": "y", "size": 1}]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "values": values}
    document |= {"machine": two_memories(2, ratio=0.99), "inputs": [{"value": "w", "memory": "host"}]}
    result = remat.solve(document)
    assert str(result.status) == "optimal"
    assert (result.makespan, result.lower_bound) == (9, 9)


def drawn(seed: int) -> dict[str, Any]:
    draw = random.Random(f"ratios {seed}")
    more = {"ratio": draw.choice([1, 0.5, 0.75]), "codec": draw.choice([None, 4, 8])}
    channels = draw.choice([("out", "in"), ("bus", "bus")])
    machine = two_memories(draw.choice([1, 2]), draw.choice([1, 2]), channels=channels, **more)
    document: dict[str, Any] = {"schema": "remat.instance/3", "units": {"time": "unit", "memory": "unit"}}
    document["machine"] = machine

    def own(key: str, chance: float = 0.6) -> dict[str, Any]:
        return {key: draw.choice([0.125, 0.25, 0.5, 1])} if draw.random() < chance else {}

    if draw.random() < 0.5:
        stages = [
            {"forward_time": draw.randint(1, 4), "backward_time": draw.randint(1, 5)}
            | {"output_size": 4 * draw.randint(1, 4), "saved_size": 4 * draw.randint(0, 2)}
            | own("output_ratio")
            | own("saved_ratio")
            for _ in range(2)
        ]
        return document | {"kind": "chain", "input_size": 8, "stages": stages} | own("input_ratio")
    tasks, values = [], []
    for k in range(5):
        reads = sorted({f"v{draw.randrange(k)}" for _ in range(2)}) if k else []
        tasks.append({"id": f"t{k}", "time": draw.randint(1, 4), "reads": reads, "writes": [f"v{k}"]})
        values.append({"id": f"v{k}", "size": 4 * draw.randint(1, 4)} | own("ratio"))
    return document | {"kind": "dag", "tasks": tasks, "values": values}


def without_ratios(document: Any) -> Any:
    if isinstance(document, list):
        return [without_ratios(entry) for entry in document]
    if not isinstance(document, dict):
        return document
    kept = {key: without_ratios(entry) for key, entry in document.items() if key != "machine"}
    found = {key: entry for key, entry in kept.items() if key not in RATIOS}
    return found | ({"machine": document["machine"]} if "machine" in document else {})


RATIOS = ("ratio", "input_ratio", "output_ratio", "saved_ratio")


def budget_of(document: dict[str, Any], seed: int) -> int:
    """Return a budget between what some task needs and what keeping everything needs."""
    kept = remat.solve(document, algorithm="offload-exact")
    return random.Random(seed).randint(kept.memory_bounds["device"].size, kept.peak_memory["device"])


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_equals_exhaustive_search(seed: int) -> None:
    """The optimum of whole values in the listed order, and no bound above it; both judges accept every schedule."""
    document = drawn(seed)
    budget = budget_of(document, seed)
    expected = offloading.least_makespan(document, budget, states=100_000)
    assert expected == expected, "too many states"
    for name in FROM_ALL + (FROM_CHAINS if document["kind"] == "chain" else ()):
        # Searches without a proof go on for a while: their limit only saves time.
        limit = None if name == "offload-exact" else 0.1
        result = remat.solve(document, algorithm=name, budget={"device": budget}, time_limit=limit)
        if name == "offload-exact":
            assert result.makespan == (None if expected is None else pytest.approx(float(expected), rel=1e-12))
        if expected is not None:
            assert result.lower_bound <= float(expected) * (1 + 1e-12)
        if result.makespan is not None:
            verdict = referee.check(document, result.to_dict())
            assert verdict.ok, verdict.violations
            assert verdict.makespan == pytest.approx(result.makespan, rel=1e-9)


@pytest.mark.slow
def test_the_draws_need_their_ratios() -> None:
    """In at least three of ten draws the optimum is another one than without the values' own ratios."""
    changed = 0
    for seed in range(10):
        document = drawn(seed)
        budget = {"device": budget_of(document, seed)}
        makespans = [
            remat.solve(one, algorithm="offload-exact", budget=budget).makespan
            for one in (document, without_ratios(document))
        ]
        changed += makespans[0] != makespans[1]
    assert changed >= 3


def test_who_cannot_says_so() -> None:
    stages = [stage | {"parameter_size": 4, "optimizer_size": 4} for stage in five()["stages"]]
    document = five() | {"stages": stages, "optimizer_memory": "host"}
    with pytest.raises(remat.OptionError, match="'weight-offload' does not support values such as 'x0' of 'conv1'"):
        remat.solve(document, algorithm="weight-offload")


def test_ratios_count_only_where_a_link_compresses() -> None:
    document = five() | {"machine": two_memories(2, 1)}
    plain = without_ratios(document)
    ours, theirs = (remat.solve(one, algorithm="vdnn-pp") for one in (document, plain))
    assert starts(ours) == starts(theirs)
    assert remat.solve(document | {"stages": [s | {"parameter_size": 1} for s in document["stages"]]}).makespan


def test_documents() -> None:
    """Ratios need schema 3, belong to the digest, and survive a round trip; annotations do not change the digest."""
    document = drawn(next(seed for seed in range(99) if drawn(seed)["kind"] == "dag"))
    instance = remat.load(document)
    assert [value.ratio for value in instance.values] == [entry.get("ratio") for entry in document["values"]]
    assert digest(instance) != digest(remat.load(without_ratios(document)))
    values = [entry | {"dtype": "f32"} for entry in document["values"]]
    assert digest(instance) == digest(remat.load(document | {"values": values}))
    values[0]["ratio"] = "half"
    with pytest.raises(remat.InstanceError, match=r"values\[0\]\.ratio"):
        remat.load(document | {"values": values})
    with pytest.raises(remat.InstanceError, match=r"needs the schema 'remat\.instance/3'"):
        remat.load(five() | {"schema": "remat.instance/2", "machine": two_memories(2)})
    assert remat.load(five() | {"machine": two_memories(2)}).least_schema == "remat.instance/3"


def joined(*chains: dict[str, Any]) -> dict[str, Any]:
    """Return chains as a join, on the machine of the first."""
    keys = ("input_size", "input_ratio", "stages")
    branches = [{key: chain[key] for key in keys if key in chain} for chain in chains]
    common = {key: chains[0][key] for key in ("machine", "units") if key in chains[0]}
    return common | {"schema": "remat.instance/3", "kind": "join", "chains": branches}


def drawn_chain(seed: int) -> dict[str, Any]:
    return next(one for k in range(99) if (one := drawn(100 * seed + k))["kind"] == "chain")


def in_join(name: str) -> str:
    """Return the name of a task or value of a chain in a join of this chain alone."""
    return name if name == "loss" else re.sub(r"^([A-Za-z]+)", r"\g<1>1.", name)


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_chains_of_a_join_have_ratios(seed: int) -> None:
    """A join of one chain takes the time of that chain for its schedule; both judges agree."""
    chain = drawn_chain(seed)
    solved = remat.solve(chain, algorithm="vdnn-all")
    steps: list[remat.Run | remat.Copy | remat.Drop] = []
    for step in solved.steps:
        if isinstance(step, remat.Run):
            steps.append(replace(step, task=in_join(step.task), drop=tuple(map(in_join, step.drop))))
        elif isinstance(step, remat.Copy):
            steps.append(replace(step, value=in_join(step.value)))
        else:
            steps.append(replace(step, values=tuple(map(in_join, step.values))))
    assert any(isinstance(step, remat.Copy) for step in steps)
    result = remat.schedule_of(joined(chain), steps)
    assert (result.makespan, result.peak_memory) == (solved.makespan, solved.peak_memory)
    verdict = referee.check(joined(chain), result.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.makespan == pytest.approx(result.makespan, rel=1e-9)


def test_joins_are_built_with_ratios() -> None:
    arguments = {"forward_time": [1, 2], "backward_time": 2, "output_size": 4, "input_size": 8, "input_ratio": 0.25}
    arguments |= {"output_ratio": [0.5, None], "saved_ratio": 1, "saved_size": 4}
    machine = two_memories(2, ratio=0.5)
    built = remat.join([arguments, remat.chain(**arguments)], machine=machine)
    chain = remat.chain(**arguments)
    stages = [stage.model_dump(mode="json", exclude_defaults=True) for stage in chain.stages]
    branch = {"input_size": 8, "input_ratio": 0.25, "stages": stages}
    document = {"schema": "remat.instance/3", "kind": "join", "chains": [branch, branch], "machine": machine}
    assert digest(built) == digest(remat.load(document))
    assert digest(built) != digest(remat.load(without_ratios(document)))
