"""remat.jax against jax.checkpoint with fixed policies: memory that XLA allocates, and CPU time of a gradient step.

    python -m benchmarks.jax_policies [--rounds N]

Two transformers of 8 layers, as a loop in Python and as a scan over layers. For the plans at three budgets, and for
those within the memory of `nothing_saveable` and `dots_saveable`: the prediction, the temporary bytes of
`memory_analysis()`, the CPU time (median of interleaved rounds), and the largest difference of a gradient from that
without checkpoints, relative to the largest element. It needs JAX (`make test-jax` installs it).
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from statistics import median

import jax
import jax.numpy as jnp

import remat.jax

LAYERS, BATCH, TIME, WIDTH, HEADS = 8, 4, 256, 256, 4
MIB = 2**20


def norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale


def block(weights, x):
    q, k, v = jnp.split(norm(x, weights["scale"][0]) @ weights["qkv"], 3, -1)
    q, k, v = (each.reshape(BATCH, TIME, HEADS, WIDTH // HEADS) for each in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((TIME, TIME), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v).reshape(BATCH, TIME, WIDTH)
    x = x + mixed @ weights["out"]
    return x + jax.nn.gelu(norm(x, weights["scale"][1]) @ weights["up"]) @ weights["down"]


def parameters(stacked):
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    full = {n: 0.02 * jax.random.normal(k, (LAYERS, *s)) for k, (n, s) in zip(keys, shapes.items(), strict=True)}
    full["scale"] = jnp.ones((LAYERS, 2, WIDTH))
    return full if stacked else [jax.tree.map(lambda each, i=i: each[i], full) for i in range(LAYERS)]


def looped(weights, x, wrap=lambda f: f):
    for each in weights:
        x = wrap(block)(each, x)
    return jnp.mean(x**2)


def scanned(weights, x, wrap=lambda f: f):
    x, _ = jax.lax.scan(lambda x, each: (wrap(block)(each, x), None), x, weights)
    return jnp.mean(x**2)


def compiled(function, arguments):
    options = remat.jax.CPU_OPTIONS if jax.default_backend() == "cpu" else None
    return jax.jit(jax.value_and_grad(function)).lower(*arguments).compile(compiler_options=options)


def temporary(step):
    return step.memory_analysis().temp_size_in_bytes


def run(name, function, arguments, rounds):
    policies = jax.checkpoint_policies
    steps = {
        "no checkpoints": (compiled(function, arguments), None),
        "dots_saveable": (
            compiled(partial(function, wrap=partial(jax.checkpoint, policy=policies.dots_saveable)), arguments),
            None,
        ),
        "nothing_saveable": (compiled(partial(function, wrap=jax.checkpoint), arguments), None),
    }

    def plan(label, budget):
        planned = remat.jax.checkpoint(function, budget)
        steps[label] = (compiled(planned, arguments), planned.plan)
        return planned.plan

    most = plan("remat, fastest", None).peak
    for share in (75, 50, 30):
        plan(f"remat, {share} %", most * share // 100)
    for policy in ("dots_saveable", "nothing_saveable"):
        try:
            plan(f"remat, as {policy}", temporary(steps[policy][0]))
        except remat.jax.JaxError as error:
            print(f"{name}: as {policy}: {error}")
    seconds = {label: [] for label in steps}
    gradients = {label: jax.block_until_ready(step(*arguments)) for label, (step, _) in steps.items()}
    for _ in range(rounds):
        for label, (step, _) in steps.items():
            start = time.process_time()
            jax.block_until_ready(step(*arguments))
            seconds[label].append(time.process_time() - start)
    expected = jax.tree.leaves(gradients["no checkpoints"])
    for label, (step, made) in steps.items():
        predicted = f"{made.peak / MIB:.1f}" if made else ""
        overhead = f"{100 * made.overhead:.1f} %" if made else ""
        pairs = zip(jax.tree.leaves(gradients[label]), expected, strict=True)
        off = max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs)
        cells = (name, label, predicted, f"{temporary(step) / MIB:.1f}", f"{median(seconds[label]):.3f}", overhead)
        print("| " + " | ".join(cells) + f" | {off:.1e} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print("| model | policy | predicted MiB | measured MiB | CPU s | predicted overhead | difference |")
    print("|---|---|---|---|---|---|---|")
    x = jax.random.normal(jax.random.key(1), (BATCH, TIME, WIDTH))
    run("loop", looped, (parameters(stacked=False), x), rounds)
    run("scan", scanned, (parameters(stacked=True), x), rounds)


if __name__ == "__main__":
    main()
