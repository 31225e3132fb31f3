"""Schedules of chains as steps of a program: accepted and refused schedules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.schedule.chain_steps import Stage, chain_steps


def instance_of(sizes):
    stages = [
        {"forward_time": 1, "backward_time": 2, "output_size": out, "saved_size": saved, "backward_reads": reads}
        for out, saved, reads in sizes
    ]
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 3, "stages": stages}


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 5), st.integers(0, 9), st.sampled_from([["input", "saved"], ["input", "output", "saved"]])
        ),
        min_size=1,
        max_size=7,
    ),
    st.sampled_from([0.5, 0.7, 0.9, 1]),
)
def test_the_steps_of_persistent_schedules_are_accepted_whatever_their_order(sizes, share):
    instance = instance_of(sizes)
    kept = remat.solve(instance, algorithm="keep-all")
    plan = remat.solve(instance, algorithm="rotor", budget=int(share * kept.peak_memory["memory"]))
    for found in (kept, plan):
        if found.columns is None:
            continue
        document = found.to_dict()
        steps = chain_steps(document, len(sizes))
        names = [f"{step.kind}{step.stage or ''}" for step in steps if isinstance(step, Stage)]
        assert names == [step["run"] for step in document["steps"] if "run" in step]


def run(*names, **drops):
    return {"steps": [{"run": name, "drop": drops.get(name, [])} for name in names]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (run("Fe1", "Fe2", "loss", "B1", "B2"), "B1 reads y1, which is not there"),
        (run("Fe1", "Fe2", "loss", "B2", "B2", "B1"), "B2 runs out of order or twice"),
        (run("Fe1", "Fe2", "loss", "B2"), "it does not run B1"),
        (run("Fe1", "Fe2"), "it does not run B2"),
        (run("Fe1", "Fe2", "loss", "loss"), "it runs the loss twice"),
        (run("Fe1", "F1"), "it runs F1 while s1 is resident"),
        (run("Fe1", Fe1=["x0"]), "it drops x0, which the graph of s1 holds"),
        (run("Fe1", "Fe2", "loss", loss=["x1"]), "it drops x1, which the graph of s2 holds"),
        (run("F3"), "it runs 'F3'; expected F1 to B2 and the loss"),
        (run("U1"), "it runs 'U1'"),
        (run("Fe1", Fe1=["w1"]), "it drops 'w1'"),
        ({"steps": [{"copy": "x0", "from": "memory", "to": "host"}]}, "it copies x0 to host"),
        ({}, "it does not run B2"),
    ],
)
def test_what_two_stages_cannot_follow_is_refused(document, message):
    with pytest.raises(ValueError, match=message):
        chain_steps(document, 2)
