"""Figures of public profiles: contiguous optima, what experts chose, and stages in a row."""

import gzip
import json
import os
from pathlib import Path

import pytest

import remat
from remat.bridges.placement_profiles.partitioning import import_partitioning, import_split
from remat.plugin.proposal import ALL_SCHEDULES
from remat.solving.verifying import examine
from remat_algorithms.parallel.placement.best_pattern import CONTIGUOUS
from tests import places

REFERENCE = json.loads((places.REFERENCE / "placement.json").read_text())["points"]
PROFILES = {
    "bert24_inference": next(point for point in REFERENCE if point["data"].endswith("bert24_inference")),
    "resnet50_training": next(point for point in REFERENCE if point["data"].endswith("resnet50_training")),
}
ROW = next(point for point in REFERENCE if point["kind"] == "pipedream")


def data(*parts):
    folder = os.environ.get("REMAT_DATA")
    if folder is None:
        pytest.skip("REMAT_DATA is not set")
    return Path(folder, *parts)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("cpus", [1, 0])
def test_contiguous_optima_equal_published_ones(name, cpus):
    point = PROFILES[name]
    wanted = point["contiguous_optimum"] if cpus else point.get("without_cpu")
    profile = data("placement", f"{name}.json")
    result = remat.solve(import_partitioning(profile, cpus=cpus).instance, algorithm="tarnawski-dp")
    assert result.optimal_within in (CONTIGUOUS, ALL_SCHEDULES)
    assert result.makespan == result.report.steady.time_per_sample
    if wanted is not None:
        assert result.makespan == pytest.approx(wanted, rel=1e-9)
    assert 0 < result.lower_bound <= result.makespan


@pytest.mark.parametrize("name", PROFILES)
def test_what_an_expert_chose(name):
    """The load of the split; on the training graph what passes needs more memory than the profile has."""
    split = {"bert24_inference": "bert24_inference_expert", "resnet50_training": "resnet50_inference_expert"}[name]
    for memory in (None, "1TiB"):
        imported = import_partitioning(data("placement", f"{name}.json"), memory=memory)
        found = import_split(imported, data("placement", f"{split}.json"))
        time = examine(imported.instance, found.schedule).report.steady.time_per_sample
        if memory or name == "bert24_inference":
            assert not found.notes
            assert time == pytest.approx(PROFILES[name]["expert"], rel=1e-9)
        else:
            assert "busy for 112.1075156" in found.notes[0]


@pytest.mark.parametrize("name", PROFILES)
def test_one_device_takes_the_published_time(name):
    imported = import_partitioning(data("placement", f"{name}.json"), accelerators=1, cpus=0)
    times = [task.time["accelerator"] for task in imported.instance.tasks]
    assert sum(times) == pytest.approx(PROFILES[name]["one_device"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_no_order_is_no_worse(name):
    instance = import_partitioning(data("placement", f"{name}.json")).instance
    result = remat.solve(instance, algorithm="tarnawski-ip", options={"work": 2.0, "moves": 500_000})
    assert result.makespan <= PROFILES[name]["contiguous_optimum"] * (1 + 1e-9)
    assert result.lower_bound <= result.makespan


@pytest.mark.parametrize("sent", [False, True], ids=["compute", "transfers"])
def test_stages_in_a_row(sent):
    """Four stages of a profile in milliseconds; 2 a on one link equal a in each direction at half speed."""
    path = data("chains", "pipedream_vgg16.json")
    chain = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_text())
    kept = ("forward_time", "backward_time", "output_size")
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": chain["units"],
        "weights": "stash",
        "micro_batches": 8,
        "layers": [{key: stage[key] for key in kept} for stage in chain["stages"]],
        "cluster": {
            "devices": [{"name": "gpu", "count": ROW["stages"]}],
            "levels": [{"bandwidth": ROW["bandwidth"] / 1000 / 2}] if sent else [],
        },
    }
    result = remat.solve(document, algorithm="tarnawski-dp")
    wanted = ROW["with_transfers"] if sent else ROW["compute_only"]
    assert result.makespan == pytest.approx(1000 * wanted, rel=1e-9)
    assert result.report.steady.time_per_sample == result.makespan
