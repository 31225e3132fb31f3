"""Chains with parameters: an offloading algorithm refuses them, or ends with all values in their memories."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import remat
from remat.testing import strategies
from remat_algorithms import catalogue
from tests.algorithms.offload import trained

NAMES = [entry.name for entry in catalogue if entry.accepts("chain") and entry.several_memories]
SLOW = {
    "offload-exact": {"work": 0.001},
    "swapadvisor": {"iterations": 5},
    "weight-offload": {"evaluations": 5},
    "offmate": {"evaluations": 5},
    "dag-offload-best": {"iterations": 5},
}

EMPTY = {"forward_time": 0, "backward_time": 0, "output_size": 0}
UPDATES_IN_THE_MIDDLE = {
    "schema": "remat.instance/2",
    "kind": "chain",
    "input_size": 0,
    "stages": [EMPTY | {"parameter_size": 1}, EMPTY | {"parameter_size": 1}, EMPTY],
    "machine": trained.machine(host_processor=False),
}
"""As many updates as make the loss something else than the middle of the order."""


@st.composite
def with_parameters(draw):
    """Draw chains of which some stages have parameters, and some none, where they are updated."""
    document = draw(strategies.chains(largest=3, plain=True, exact=True))
    for stage in document["stages"]:
        stage |= draw(st.sampled_from([{}, {"parameter_size": 1}, {"parameter_size": 3, "optimizer_size": 2}]))
    document["stages"][0]["parameter_size"] = 2
    machine = trained.machine(host_processor=draw(st.booleans()))
    return document | {"schema": "remat.instance/2", "machine": machine}


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_refused_or_kept(name):
    solved = []

    @settings(max_examples=6, derandomize=True, database=None, deadline=None)
    @given(with_parameters())
    @example(UPDATES_IN_THE_MIDDLE)
    def run(document):
        options = SLOW.get(name, {})
        try:
            result = remat.solve(document, algorithm=name, options=options)
        except remat.OptionError as error:
            solved.append(str(error))
            return
        if result.columns is not None:
            assert remat.verify(document, result.to_dict()).ok
        solved.append(result)

    run()
    assert solved
