"""Faults of lowering: from documents to task graphs and machines."""

from tests.mutants.fault import faults_of

CHAIN, ARRAYS, WEIGHTS = "chain.py", "chain_arrays.py", "weights.py"

FAULTS = faults_of(
    "solver/remat/instance/lowering",
    ("tests/instance/lowering/test_lowering.py",),
    [
        (
            CHAIN,
            'Memory("working", working + instance.static_memory)',
            'Memory("working", working)',
            "the working memory has room for the static one",
        ),
        (
            CHAIN,
            "((0, index, level.write_time), (index, 0, level.read_time))",
            "((0, index, level.read_time), (index, 0, level.write_time))",
            "to write is to copy into the level",
        ),
        (
            CHAIN,
            "instance.state_size + adjoint + (instance.tape_size or 0)",
            "instance.state_size + adjoint",
            "the working memory has room for a tape",
        ),
        (
            CHAIN,
            "(x[1:][stage], ways.reads_output)",
            "(x[:-1][stage], ways.reads_output)",
            "a backward reads its stage's output",
        ),
        (
            CHAIN,
            "        recomputable[length + saves + 1 :] = ~alternative\n",
            "",
            "the backwards of variants run at most once",
        ),
        (
            CHAIN,
            "np.argmin(forward + ways.backward_time[first:end])",
            "np.argmin(ways.backward_time[first:end])",
            "the cheapest variant counts its forward",
        ),
        (
            ARRAYS,
            "[instance.input_size if instance.input_gradient else 0]",
            "[instance.input_size]",
            "an input without gradient has none",
        ),
        (
            ARRAYS,
            "stage.output_size if stage.gradient_size is None else stage.gradient_size for stage",
            "stage.gradient_size or stage.output_size for stage",
            "a gradient of no bytes is not a missing one",
        ),
        (
            ARRAYS,
            "default = own if instance.tape_time is None else instance.tape_time",
            "default = forward if instance.tape_time is None else instance.tape_time",
            "a step tapes as fast as it advances itself",
        ),
        (
            ARRAYS,
            "loss_time=0 if taped else steps.backward[-1].item()",
            "loss_time=0",
            "the last step's backward takes time",
        ),
        (
            "tree.py",
            "outputs=(Resident(root),) if inward else (),",
            "outputs=(),",
            "an in-tree's root is its output",
        ),
        (
            "dag.py",
            "np.array([p.max if p else 1 for p in parallel], dtype=np.int64)",
            "np.array([p.max if p else 2 for p in parallel], dtype=np.int64)",
            "a task without `parallel` takes one processor",
        ),
        (
            WEIGHTS,
            'if instance.master_copy and number in index["o"] else',
            "if instance.master_copy else",
            "without optimizer state an update reads the parameters",
        ),
        (
            WEIGHTS,
            'if size or name == "g"}',
            "if size}",
            "a gradient of no bytes orders the update",
        ),
        (
            WEIGHTS,
            'for v in index[f"n{name}"].values()',
            "for v in index[name].values()",
            "the updated parameters are what must remain",
        ),
    ],
)
