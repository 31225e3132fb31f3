"""Generated pipelines: branches."""

import pytest

import remat
from remat.generate.pipeline import uniform


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
    """Two towers and the layer that reads them, one micro-batch: as long as one tower and that layer."""
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
