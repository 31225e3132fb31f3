"""The published profile of VGG-16 on four stages: the slowest stage, or transfer there and back."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

import remat
from tests.places import REFERENCE


@pytest.mark.parametrize(("key", "transfers"), [("compute_only", False), ("with_transfers", True)])
def test_pipedream_equals_its_published_plans(key, transfers):
    if "REMAT_DATA" not in os.environ:
        pytest.skip("REMAT_DATA is not set")
    wanted = next(one for one in json.loads((REFERENCE / "placement.json").read_text())["points"] if key in one)
    chain = json.loads((Path(os.environ["REMAT_DATA"]) / "chains" / "pipedream_vgg16.json").read_text())
    keys = ("forward_time", "backward_time", "output_size")
    layers = [{key: stage[key] for key in keys} for stage in chain["stages"]]
    bandwidth = wanted["bandwidth"] / 1000  # a millisecond
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": chain["units"],
        "micro_batches": 8,
        "layers": layers,
        "cluster": {
            "devices": [{"name": "gpu", "count": wanted["stages"]}],
            "levels": [{"bandwidth": bandwidth}] if transfers else [],
        },
    }
    stages = remat.solve(document, algorithm="pipedream-dp").to_dict()["stages"]
    cuts = [0, *(stage["layers"]["to"] for stage in stages)]
    times = [sum(layer["forward_time"] + layer["backward_time"] for layer in layers[a:b]) for a, b in pairwise(cuts)]
    ways = [2 * layers[cut - 1]["output_size"] / bandwidth for cut in cuts[1:-1]] if transfers else []
    assert len(stages) == wanted["stages"]
    assert max(times + ways) == pytest.approx(1000 * wanted[key], rel=1e-9)
