"""Small models: attention and a perceptron in each layer, as a loop in Python or a scan."""

from __future__ import annotations

import jax
import jax.numpy as jnp

LAYERS, BATCH, TIME, WIDTH = 4, 2, 64, 32


def layer(weights, x):
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
    q, k, v = jnp.split(h @ weights["qkv"], 3, -1)
    scores = jnp.einsum("bqd,bkd->bqk", q, k) / WIDTH**0.5
    masked = jnp.where(jnp.tril(jnp.ones((TIME, TIME), bool)), scores, -1e9)
    x = x + jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(masked, -1), v) @ weights["out"]
    return x + jax.nn.silu(x @ weights["up"]) @ weights["down"]


def weights(*, stacked, layers=LAYERS):
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    full = {
        name: 0.1 * jax.random.normal(key, (layers, *shape))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return full if stacked else [{name: each[index] for name, each in full.items()} for index in range(layers)]


def looped(params, x):
    for each in params:
        x = layer(each, x)
    return jnp.mean(x**2)


def scanned(params, x):
    x, sums = jax.lax.scan(lambda x, each: ((y := layer(each, x)), jnp.sum(y)), x, params)
    return jnp.mean(x**2) + 1e-3 * jnp.sum(sums * jnp.arange(len(sums)))


def backwards(params, x):
    """A scan from the last layer to the first."""
    x, sums = jax.lax.scan(lambda x, each: ((y := layer(each, x)), jnp.sum(y)), x, params, reverse=True)
    return jnp.mean(x**2) + 1e-3 * jnp.sum(sums * jnp.arange(len(sums)))


def inputs():
    return jax.random.normal(jax.random.key(1), (BATCH, TIME, WIDTH))


def make():
    return scanned, (weights(stacked=True), inputs())


def unrolled():
    return looped, (weights(stacked=False), inputs())


def vector():
    return (lambda x: x), (inputs(),)


def with_loop():
    def loss(x):
        start = jax.lax.stop_gradient(x)
        return jnp.sum(x * jax.lax.while_loop(lambda c: jnp.sum(c) < 3, lambda c: c + 1, start))

    return loss, (inputs(),)


def without_gradient():
    return (lambda x: jnp.sum(jax.lax.while_loop(lambda c: jnp.sum(c) < 3, lambda c: c + 1, x))), (inputs(),)


def raising():
    raise RuntimeError("no data")


def number():
    return 3
