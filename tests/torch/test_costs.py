"""Documents of measured costs that are refused."""

import pytest

import remat
from remat.bridges.torch.costs import SCHEMA, read_costs


@pytest.mark.parametrize(
    ("operators", "why"),
    [
        (None, r"\$\.operators: expected an object with an entry for each operator"),
        ([], r"\$\.operators: expected an object"),
        ({"add": 3}, r"expected \[microseconds, bytes\], not 3"),
        ({"add": [3]}, r"expected \[microseconds, bytes\], not a list of 1"),
        ({"add": [float("nan"), 0]}, r"\$\.operators\[.*add.*\]: expected \[microseconds, bytes\]"),
        ({"add": [1, -1]}, r"expected \[microseconds, bytes\]"),
        ({"add": ["1", 0]}, r"expected \[microseconds, bytes\]"),
    ],
)
def test_measured_costs_that_are_refused(operators, why):
    with pytest.raises(remat.InstanceError, match=why):
        read_costs({"schema": SCHEMA, "operators": operators})


def test_measured_costs_are_read_from_a_document():
    assert read_costs({"schema": SCHEMA, "operators": {"add": [3, 8]}}).measured == {"add": (3, 8)}
