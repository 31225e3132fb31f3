"""Generated pipelines: branches, sizes of micro-batches, slices of sequences."""

import itertools

import pytest

import remat
from remat.generate.pipeline import transformer, uniform


@pytest.mark.parametrize(
    ("layers", "branches", "sources"),
    [
        (5, 2, [(), (0,), (), (2,), (1, 3)]),
        (6, 2, [(), (0,), (1,), (), (3,), (2, 4)]),
        (4, 3, [(), (), (), (0, 1, 2)]),
    ],
)
def test_towers_meet_in_the_last_layer(layers, branches, sources):
    assert remat.load(uniform(layers=layers, branches=branches)).sources() == sources


def test_towers_run_side_by_side():
    """Two towers run in parallel: one micro-batch takes the time of one tower and the joining layer."""
    instance = remat.load(uniform(devices=3, layers=3, branches=2, micro_batches=1))
    result = remat.solve(instance, algorithm="gpipe")
    assert result.makespan == 2 * (1 + 2)
    assert result.status == "optimal"
    proved = remat.solve(instance, algorithm="pipe-exact")
    assert proved.makespan == 6


@pytest.mark.parametrize("more", [{"skips": True}, {"layers": 2}])
def test_what_does_not_go_with_branches(more):
    with pytest.raises(ValueError, match="branches"):
        uniform(branches=2, **more)


def test_devices_that_run_layers_together():
    """A block all-reduces an activation twice per direction; three are saved whole, the rest is sharded."""
    layers = remat.load(transformer(preset="gpt2-xl", tensor="5, 25")).layers
    block = layers[1]
    assert list(block.tensor) == ["5", "25"]
    work, activation = block.tensor["5"], layers[0].output_size
    assert work.forward_time == pytest.approx(block.forward_time / 5)
    assert work.backward_time == pytest.approx(block.backward_time / 5)
    assert work.parameter_size == -(-block.parameter_size // 5)
    assert work.saved_size == 3 * activation + -(-(block.saved_size - 3 * activation) // 5)
    assert (work.output_size, block.output_size) == (activation, activation)
    sums = [(layer.tensor["5"].forward_collective_size, layer.tensor["5"].backward_collective_size) for layer in layers]
    assert sums == [(activation, 0), (2 * activation, 2 * activation), (0, activation)]
    assert layers[-1].tensor["5"].output_size == -(-layers[-1].output_size // 5)
    assert not remat.load(transformer(preset="gpt2-xl")).has_tensor


def recomputing(checkpoints):
    """Return two devices that run all layers together and recompute each, with 16 micro-batches in flight."""
    shape = {"layers": 6, "hidden": 256, "heads": 4, "sequence": 128, "vocabulary": 1000}
    made = transformer(
        **shape, devices=2, micro_batches=16, tensor="2", split=False, checkpoints=checkpoints, link="1GB/s"
    )
    stage = {"layers": {"from": 1, "to": 8}, "device": "gpu0", "tensor": 2}
    stage["recompute"] = [{"layers": {"from": layer, "to": layer}} for layer in range(1, 9)]
    orders = {"gpu0": [f"{kind}0.{batch}" for kind in "FB" for batch in range(16)]}
    report = remat.verify(made, {"schema": "remat.schedule/2", "stages": [stage], "orders": orders})
    assert report.ok
    return remat.load(made), report


def test_partitioned_checkpoints_store_a_share_of_each_input():
    """Each of two devices stores half of each block's input, has the other half as workspace, and gathers it for B."""
    whole, kept = recomputing("whole")
    shared, less = recomputing("partitioned")
    activation = whole.layers[0].output_size
    share = activation // 2
    for before, after in (
        (one.tensor["2"], other.tensor["2"]) for one, other in zip(whole.layers, shared.layers, strict=True)
    ):
        assert after.saved_size == before.saved_size
    block, halved = whole.layers[1].tensor["2"], shared.layers[1].tensor["2"]
    assert (block.output_size, halved.output_size) == (activation, share)
    assert halved.forward_workspace == block.forward_workspace + 2 * share
    assert halved.backward_workspace == block.backward_workspace + share
    assert halved.backward_collective_size == block.backward_collective_size + share
    # 16 micro-batches keep the inputs of 7 layers; a few activations more or less are in use at the peak.
    saved = kept.peaks["gpu0"].size - less.peaks["gpu0"].size
    assert abs(saved - 16 * 7 * share) <= 4 * share
    # A gather of two devices sends half an activation: 2 (t - 1) rounds of activation / 2 / t bytes, 7 x 16 times.
    assert less.makespan - kept.makespan == pytest.approx(16 * 7 * (2 * share / 2) / 1e9, rel=1e-6)


def test_checkpoints_are_partitioned_over_groups_only():
    with pytest.raises(ValueError, match="give tensor"):
        transformer(checkpoints="partitioned")


@pytest.mark.parametrize(
    ("tensor", "why"), [("2", "2 devices do not divide the 25 heads"), ("1", "above 1"), ("5,", "above 1")]
)
def test_devices_that_cannot_run_layers_together(tensor, why):
    with pytest.raises(ValueError, match=why):
        transformer(preset="gpt2-xl", tensor=tensor)


def test_sizes_are_those_of_larger_batches():
    """Each size equals the generator's output for that batch, without scaling."""
    made = transformer(sizes="2,4", micro_batches=8)
    loaded = remat.load(made)
    for size in (1, 2, 4):
        own = remat.load(transformer(batch=size, micro_batches=8 // size))
        assert loaded.of_samples(size).layers == own.layers
    with pytest.raises(ValueError, match="sizes are numbers"):
        transformer(sizes="two")


def test_slices_of_a_sequence():
    """All slices, each with the arithmetic of its part of the whole; the gradients of keys and values of each block."""
    made = transformer(slices=4, micro_batches=2, split=False, flops=1e15, bandwidth=1e30)
    rows = {(row["tokens"], row["before"]): row["layers"] for row in made["tokens"]["slices"]}
    assert len(rows) == 10
    assert made["tokens"]["length"] == 1024
    for cut in ((256, 256, 256, 256), (512, 512), (768, 256), (1024,)):
        ends = itertools.accumulate(cut, initial=0)
        taken = [rows[size, before][1]["forward_time"] for size, before in zip(cut, ends, strict=False)]
        assert sum(taken) == pytest.approx(made["layers"][1]["forward_time"], rel=1e-9)
    assert rows[256, 0][1]["forward_time"] < rows[256, 768][1]["forward_time"]
    assert rows[512, 0][1]["cache_gradient_size"] == 2 * 512 * 768 * 2
    assert remat.load(made).of_cut((256, 768)).micro_batches == 4
    with pytest.raises(ValueError, match="do not divide"):
        transformer(slices=7)
