"""Test delegation: an algorithm is called only for features that it supports."""

import pytest

import remat
from remat.plugin import Context
from remat.plugin.registry import find
from remat.solving.problem_setup import make_problem
from remat_algorithms.kit.delegation import asked
from tests.algorithms.offload.small_chains import chain, machine, stage


@pytest.mark.parametrize(("name", "answers"), [("dag-auto", False), ("weight-offload", True)])
def test_who_knows_one_memory_is_not_asked_for_more(name, answers):
    """A single-memory algorithm does not run, because it would read parameters at the host."""
    document = chain(stage(1, 1, 1, parameter_size=1), machine=machine(), parameter_memory="host")
    problem = make_problem(remat.load(document | {"schema": "remat.instance/2"}))
    proposal = asked(find(name, "chain"), problem, Context())
    assert (proposal is not None) == answers


def test_who_is_asked_with_options_that_it_has_not_says_so():
    """An unknown option is the caller's error, not a refusal, which would hide the missing start."""
    problem = make_problem(remat.load(chain(stage(1, 1, 1), machine=machine())))
    with pytest.raises(remat.OptionError, match="has no option 'generations'"):
        asked(find("swapadvisor", "chain"), problem, Context(), {"generations": 3})
