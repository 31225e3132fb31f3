"""Planned checkpoints: gradients, the memory that XLA allocates, and nested policies."""

from __future__ import annotations

import itertools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

import remat.jax
from remat.bridges.jax.fusion import fuse
from remat.bridges.jax.loops import Groups
from remat.bridges.jax.options import _Analysis, _joint, analyse
from remat.bridges.jax.planning import Again, Keep, Model, rates_of, tree_of
from tests.jax import models

MODELS = {"loop": (models.looped, False), "scan": (models.scanned, True), "reversed": (models.backwards, True)}


def arguments(name):
    function, stacked = MODELS[name]
    return function, models.weights(stacked=stacked), models.inputs()


def close(ours, theirs):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["loop", "scan"])
def test_memory_falls_with_the_budget_and_gradients_are_equal(name):
    function, params, x = arguments(name)
    expected = jax.jit(jax.value_and_grad(function))(params, x)
    fastest = remat.jax.checkpoint(function)
    fastest(params, x)
    most = fastest.plan.peak
    measured, overheads = [], []
    for share in (100, 60, 45):
        planned = remat.jax.checkpoint(function, most * share // 100)
        step = jax.value_and_grad(planned)
        measured.append(remat.jax.temporary_bytes(step, params, x))
        assert planned.plan.peak <= most * share // 100
        assert measured[-1] <= 1.1 * planned.plan.peak
        overheads.append(planned.plan.overhead)
        close(jax.jit(step)(params, x), expected)
    assert measured == sorted(measured, reverse=True)
    assert measured[0] > measured[-1]
    assert overheads == sorted(overheads)


@pytest.mark.parametrize("name", ["scan", "reversed"])
def test_every_way_through_a_scan_has_the_same_gradient(name):
    function, params, x = arguments(name)
    expected = jax.jit(jax.value_and_grad(function))(params, x)
    leaves, tree = jax.tree.flatten(params)
    model = Model(
        jax.make_jaxpr(lambda *given: function(jax.tree.unflatten(tree, given[:-1]), given[-1]))(*leaves, x), "A100"
    )
    part = next(iter(model.layers.values())).part
    few, all_ = part.options[-1], part.options[0]
    at = next(iter(model.layers))
    for groups in (Groups((4,), (few,)), Groups((1, 3), (few, all_)), Groups((4,), (all_,), 2)):
        model.choices[at] = [(groups, None)]
        parts = [Keep(index, 0) for index in range(len(model.cut.stages))]

        def loss(leaves, x, parts=parts):
            return model.run(parts, [*leaves, x])[0]

        value, found = jax.jit(jax.value_and_grad(loss))(leaves, x)
        close((value, jax.tree.unflatten(tree, found)), expected)


def test_nested_checkpoints_of_a_schedule():
    runs = ["Fe1.2", "F2", "F3", "Fe4", "loss", "B4", "F2", "Fe3.1", "B3.1", "Fe2.3", "B2.3", "B1.2"]
    inner = Again((Again((Keep(1, 2),)), Keep(2, 0)))
    assert tree_of(runs) == (Keep(0, 1), inner, Keep(3, 0))


def test_saved_names_are_the_lower_hull_of_all_sets():
    """Against every set of names of a small function."""

    def function(x, w):
        named = [jax.ad_checkpoint.checkpoint_name]
        h = named[0](x @ w, "a")
        h = named[0](jnp.sin(h) @ w, "b")
        h = named[0](jnp.tanh(h @ w[:, :8]), "c")
        return [h @ w[:8]]

    shapes = [jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((64, 64), "float32")]
    rates = rates_of(remat.bridges.jax.program.flatten(jax.make_jaxpr(function)(*shapes)), "A100")
    found = analyse(function, shapes, rates, flowing=[0]).options
    program, ends = _joint(function, shapes, {0}, False)
    analysis = _Analysis(program, fuse(program, rates), ends, False)
    every = [
        analysis._option(frozenset(chosen))
        for count in range(4)
        for chosen in itertools.combinations(sorted(analysis.saveable), count)
    ]
    assert {each.names for each in found} <= {each.names for each in every}
    for weight in np.geomspace(1e-6, 1e6, 200):
        best = min(each.saved + weight * each.again for each in every)
        assert min(each.saved + weight * each.again for each in found) == pytest.approx(best)


def test_keywords_auxiliary_results_and_numbers():
    def function(params, x, scale, *, power):
        y = jnp.sum((x @ params["w"]) ** power) * scale
        return y, {"sum": jnp.sum(x)}

    params, x = {"w": jnp.ones((4, 4))}, jnp.arange(8.0).reshape(2, 4)
    planned = remat.jax.checkpoint(function)
    ours = jax.value_and_grad(planned, has_aux=True)(params, x, 2, power=3)
    close(ours, jax.value_and_grad(function, has_aux=True)(params, x, 2, power=3))
    assert "peak" in planned.plan.summary


def test_a_closure_over_traced_values_gets_a_plan_of_its_own():
    def outer(w, x):
        inner = remat.jax.checkpoint(lambda x: jnp.sum(jnp.sin(x @ w)))
        return inner(x)

    w, x = jnp.ones((4, 4)), jnp.ones((2, 4))
    ours = jax.jit(jax.grad(outer))(w, x)
    close(ours, jax.grad(lambda w, x: jnp.sum(jnp.sin(x @ w)))(w, x))


def test_a_changed_closure_over_a_number_gets_a_plan_of_its_own():
    factor = 2.0
    planned = remat.jax.checkpoint(lambda x: jnp.sum(x * factor))
    assert planned(jnp.ones(3)) == 6
    factor = 3.0
    assert planned(jnp.ones(3)) == 9


def test_a_function_without_work_recomputes_nothing():
    planned = remat.jax.checkpoint(lambda x: x.reshape(-1))
    planned(jnp.ones((3, 2)))
    assert planned.plan.overhead == 0
    assert "overhead 0.00% over the " in planned.plan.summary
    assert " without recomputation" in planned.plan.summary


def test_constants_of_calls_are_no_gradients():
    """Calls whose jaxprs hold constants add inputs after those of the function."""
    weights = np.ones((4, 4), np.float32)
    called = jax.make_jaxpr(lambda x: jnp.sin(x @ weights))(jnp.ones((4, 4)))

    def function(x):
        return [jax.extend.core.jaxpr_as_fun(called)(x)[0]]

    shape = jax.ShapeDtypeStruct((4, 4), "float32")
    program, ends = _joint(jax.jit(function), [shape], {0}, False)
    assert ends.tangents
    assert ends.tangents.isdisjoint(program.outputs)


def test_own_rules_of_differentiation_stay():
    @jax.custom_vjp
    def double(x):
        return 2 * x

    double.defvjp(lambda x: (2 * x, None), lambda _, g: (5 * g,))  # wrong on purpose
    planned = remat.jax.checkpoint(lambda w, x: jnp.sum(double(jax.checkpoint(jnp.tanh)(x @ w))))
    w, x = jnp.ones((4, 4)), jnp.ones((2, 4))
    expected = jax.grad(lambda w: 5 * jnp.sum(jnp.tanh(x @ w)))(w)
    close(jax.grad(planned)(w, x), expected)


def test_a_budget_that_no_policy_keeps():
    function, params, x = arguments("scan")
    with pytest.raises(remat.jax.JaxError, match=r"no policy keeps the budget of 1000; the smallest that is known is"):
        remat.jax.checkpoint(function, 1000)(params, x)


def test_a_host_takes_what_is_saved():
    function, params, x = arguments("scan")
    planned = remat.jax.checkpoint(function, host="1000TB/s")
    planned(params, x)
    small = remat.jax.checkpoint(function, planned.plan.peak // 2, host="1000TB/s")
    text = str(jax.make_jaxpr(jax.grad(small))(params, x))
    assert "offloads" in small.plan.summary
    assert "Host" in text or "host" in text
