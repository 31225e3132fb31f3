"""Pipelines for tests: certified ones, and tiny ones that are drawn."""

import json
import random

from remat_algorithms.parallel.pipeline.model import PipelineModel
from tests import places

OPTIMA = json.loads((places.REFERENCE / "pipeline_optima.json").read_text())["points"]


def certified(point):
    """Return the model of a point, whether its figure is a span, and the figure."""
    place = tuple(point["place"])
    stages, devices = len(place), max(place) + 1
    model = PipelineModel(
        place=place,
        batches=point["m"],
        forward=(point["F"],) * stages,
        backward=(point["B"],) * stages,
        weight=(point.get("W", 0),) * stages,
        hop=(point.get("c", 0),) * (stages - 1),
        activation=(point.get("A", 1),) * stages,
        kept=(point.get("Aw", 0),) * stages,
        fixed=(0,) * devices,
        capacity=(point["cap"],) * devices,
    )
    return model, point.get("objective") == "span", point["best"]


PLACES = ((0,), (0, 0), (0, 1), (1, 0), (0, 1, 0), (0, 1, 2), (0, 0, 1), (0, 1, 1), (0, 2, 1))


def drawn(seed, *, recomputed=False):
    """Return a tiny model; with `recomputed`, stages may keep more for W than they hold before B."""
    rng = random.Random(seed)
    place = rng.choice(PLACES)
    stages, devices = len(place), max(place) + 1 + rng.randrange(2)
    alone = len(set(place)) == stages
    split = rng.random() < 0.5 and (alone or stages == 2)
    batches = rng.randint(1, 3 if alone and stages < 3 else 2)
    weight = tuple(rng.randint(0, 3) if split else 0 for _ in place)
    activation = tuple(rng.randint(0, 4) for _ in place)
    kept = tuple(
        rng.randint(0, own + 2 * recomputed) if time else 0 for own, time in zip(activation, weight, strict=True)
    )
    fixed = tuple(rng.randint(0, 2) for _ in range(devices))
    least = [
        more + max(sum(size for size, on in zip(activation, place, strict=True) if on == device), 0)
        for device, more in enumerate(fixed)
    ]
    return PipelineModel(
        place=place,
        batches=batches,
        forward=tuple(rng.randint(0, 3) for _ in place),
        backward=tuple(rng.randint(0, 4) for _ in place),
        weight=weight,
        hop=tuple(rng.randint(0, 2) for _ in place[1:]),
        activation=activation,
        kept=kept,
        fixed=fixed,
        capacity=tuple(rng.choice((None, size - 1, size, size, size + 1, size + 2, size + 4)) for size in least),
    )


BOTH_WAYS = ((0, 1, 1, 0), (0, 1, 1, 0), (0, 0), (0, 1, 0, 1), (1, 0, 0, 1))


def drawn_both_ways(seed):
    """Return a tiny model of two chains, which pass two devices in opposite or in equal directions."""
    rng = random.Random(seed)
    place = rng.choice(BOTH_WAYS)
    stages, devices = len(place), max(place) + 1
    chains = ((0, rng.randint(1, 2)), (stages // 2, rng.randint(0, 2 if stages == 2 else 1)))
    split = rng.random() < 0.3 and stages == 2
    weight = tuple(rng.randint(0, 2) if split else 0 for _ in place)
    activation = tuple(rng.randint(0, 4) for _ in place)
    least = [max(size for size, on in zip(activation, place, strict=True) if on == device) for device in range(devices)]
    return PipelineModel(
        place=place,
        batches=max(count for _, count in chains),
        forward=tuple(rng.randint(0, 3) for _ in place),
        backward=tuple(rng.randint(0, 4) for _ in place),
        weight=weight,
        hop=tuple(rng.randint(0, 2) for _ in place[1:]),
        activation=activation,
        kept=tuple(rng.randint(0, own) if time else 0 for own, time in zip(activation, weight, strict=True)),
        fixed=(0,) * devices,
        capacity=tuple(rng.choice((None, size - 1, size, size, size + 1, size + 2, size + 4)) for size in least),
        chains=chains,
    )
