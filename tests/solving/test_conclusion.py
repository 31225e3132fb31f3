"""Placement leaves bytes to the verifier: the outcome is that of placement with bytes, for every capacity."""

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.placement import Unplaceable, place
from remat.plugin import Proposal
from remat.plugin.registry import find
from remat.solving.conclusion import _placed, conclude
from remat.solving.problem_setup import make_problem
from remat.testing import strategies


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(strategies.chains(), st.integers(0, 3))
def test_steps_are_placed_or_refused_as_by_placement_alone(document, more):
    instance = remat.load(document)
    problem = make_problem(instance)
    steps = replace(remat.solve(instance, algorithm="keep-all").columns, start=None)
    free, _ = _placed(problem, find("rotor", "chain"), steps)
    peak = max(remat.solve(instance, algorithm="keep-all").peak_memory.values())
    for capacity in (peak, max(peak - 1 - more, 0), peak // 2):
        tight = problem.with_capacities({problem.machine.memories[0].name: capacity})
        expected = place(tight.graph, tight.machine, steps)
        for name in ("rotor", "keep-all"):
            found, report = _placed(tight, find(name, "chain"), steps)
            if isinstance(expected, Unplaceable):
                # The initial contents may exceed a memory before any step, and steps then need more.
                resident = sum(int(tight.graph.size[place.value]) for place in tight.graph.inputs)
                resident += tight.graph.static_bytes(tight.machine, 0)
                assert found == (expected if resident <= capacity else expected._replace(needed=resident))
                assert report is None
            else:
                assert found.start.tolist() == free.start.tolist() == expected.start.tolist()
                assert report.ok


def test_a_claim_that_does_not_fit_names_the_step_and_its_bytes():
    chain = remat.chain(forward_time=[1] * 5, backward_time=1, output_size=4, saved_size=3, input_size=2)
    whole = remat.solve(chain, algorithm="keep-all")
    capacity = whole.peak_memory["memory"] - 1
    problem = make_problem(chain, budget=capacity)
    with pytest.raises(remat.ClaimError, match=rf"rotor: step \d+ needs \d+ of {capacity} in memory, although"):
        conclude(problem, find("rotor", "chain"), Proposal(steps=replace(whole.columns, start=None)), {})


def test_an_unknown_answer_has_a_reason():
    """A search that ends without a schedule, a proof, a limit or a note gets a note."""
    result = remat.solve(remat.examples()["pipelines/uniform_p4_m8"], algorithm="chimera-plan", budget="75%")
    assert str(result.status) == "unknown"
    assert result.notes == ("chimera-plan: no schedule that fits; another algorithm may find one",)
