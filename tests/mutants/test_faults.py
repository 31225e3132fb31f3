"""Test that every fault still matches the text that it replaces, and that its tests exist."""

import ast
from dataclasses import replace

import pytest

from tests import places
from tests.mutants.fault import text_of
from tests.mutants.faults import EXPLAINED, FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_source(fault):
    spoilt = fault.applied_to(text_of(fault.file))
    ast.parse(spoilt)
    assert fault.right != fault.wrong
    for test in fault.tests:
        file, _, name = test.partition("::")
        assert (places.ROOT / file).exists(), test
        assert f"def {name}(" in text_of(file) if name else True, test


def test_there_are_enough_and_no_two_are_alike():
    assert len(FAULTS) >= 60
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert set(EXPLAINED) <= {fault.name for fault in FAULTS}


@pytest.mark.parametrize(("right", "count"), [("nowhere to be found", 0), ("\n", 2)])
def test_a_stale_fault_is_named(right, count):
    fault = replace(FAULTS[0], right=right, breaks="an example")
    with pytest.raises(
        ValueError, match=rf"stale fault \(.*: an example\): its text occurs {count} times in {fault.file}"
    ):
        fault.applied_to("one\ntwo\n")
