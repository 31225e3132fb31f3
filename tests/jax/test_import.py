"""`remat import jax`: the gradient step as a task graph, and what is refused in one line."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import remat
from remat.jax import import_step
from tests.jax import models
from tests.places import ROOT

MODELS = str(ROOT / "tests" / "jax" / "models.py")


def test_a_scan_is_its_layers():
    scan, (params, x) = models.make()
    own = remat.load(import_step(scan, (params, x)).document)

    def same(params, x):
        sums = []
        for index in range(models.LAYERS):
            x = models.layer({name: each[index] for name, each in params.items()}, x)
            sums.append(jnp.sum(x))
        return jnp.mean(x**2) + 1e-3 * jnp.sum(jnp.stack(sums) * jnp.arange(models.LAYERS))

    other = remat.load(import_step(same, (params, x)).document)
    products = [sum("dot_general" in task.id for task in each.tasks) for each in (own, other)]
    assert products == [18 * models.LAYERS - 1] * 2  # the gradient of the input is not wanted
    peaks = [max(remat.solve(each, algorithm="keep-all").peak_memory.values()) for each in (own, other)]
    assert peaks[0] == pytest.approx(peaks[1], rel=0.1)


def test_operations_of_products():
    made = import_step(lambda w, x: jnp.sum(x @ w), (jnp.ones((8, 16)), jnp.ones((4, 8))))
    assert made.flops == 2 * 4 * 8 * 16 * 2  # forward, and the gradient of the weights


def test_regions_of_the_program_are_recognised():
    """A checkpoint of the user's is there, recomputed in the backward."""
    _, (params, x) = models.unrolled()
    plain = import_step(models.looped, (params, x)).flops

    def recomputing(params, x):
        for each in params:
            x = jax.checkpoint(models.layer)(each, x)
        return jnp.mean(x**2)

    assert import_step(recomputing, (params, x)).flops > 1.2 * plain


def test_the_command_imports_a_jax_function(run, tmp_path):
    path = tmp_path / "step.json"
    assert run("import", "jax", f"{MODELS}:make", "-o", str(path)).code == 0
    instance = remat.load(path)
    kept = remat.solve(instance, algorithm="keep-all")
    less = remat.solve(instance, budget="80%", time_limit=20)
    assert max(less.peak_memory.values()) <= 0.8 * max(kept.peak_memory.values())


def test_a_loop_is_one_task(run):
    found = run("import", "jax", f"{MODELS}:with_loop")
    assert found.code == 0
    assert "one task each: 1 x while" in found.err


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("vector", "the loss is not a scalar: <lambda> returns float32 [2, 64, 32], not one floating-point number"),
        ("without_gradient", "<lambda> has no gradient: ValueError: Reverse-mode differentiation"),
        ("raising", "raised RuntimeError: no data"),
        ("number", "returns a int, not (function, args) or (function, args, kwargs)"),
        ("nothing", "has no function 'nothing'"),
    ],
)
def test_unsupported_functions_are_refused(run, factory, why):
    run("import", "jax", f"{MODELS}:{factory}").assert_refused(why)


def test_a_module_that_is_not_there(run):
    run("import", "jax", "nowhere:make").assert_refused("nowhere cannot be imported: ModuleNotFoundError")
    run("import", "jax", "nowhere").assert_refused("expected MODULE:FACTORY")


def test_what_nested_scans_stack_is_read():
    def nested(w, x):
        def inner(carry, _):
            carry = jnp.tanh(carry @ w)
            return carry, carry @ w

        def outer(carry, _):
            return jax.lax.scan(inner, carry, length=3)

        return jnp.sum(jax.lax.scan(outer, x, length=4)[1] ** 2)

    def same(w, x):
        total = 0
        for _ in range(12):
            x = jnp.tanh(x @ w)
            total += jnp.sum((x @ w) ** 2)
        return total

    shapes = jnp.ones((8, 8)), jnp.ones((2, 8))
    assert import_step(nested, shapes).flops == import_step(same, shapes).flops
