"""Faults of lowering: from documents to task graphs and machines."""

from tests.mutants.fault import faults_of

CHAIN, ARRAYS, WEIGHTS = "chain.py", "chain_arrays.py", "weights.py"

FAULTS = faults_of(
    "solver/remat/instance/lowering",
    ("tests/instance/lowering/test_lowering.py",),
    [
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
            "np.argmin(forward + ways.backward_time[first:end])",
            "np.argmin(ways.backward_time[first:end])",
            "the cheapest variant counts its forward",
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
            "dag.py",
            "parallel_max=_filled(count, 1, ",
            "parallel_max=_filled(count, 2, ",
            "a task without `parallel` takes one processor",
        ),
        (
            WEIGHTS,
            'if self.instance.master_copy and number in self.index["o"] else',
            "if self.instance.master_copy else",
            "without optimizer state an update reads the parameters",
        ),
        (
            WEIGHTS,
            'columns["g"][number] = share',
            'columns["g"].update({number: share} if share else {})',
            "a gradient of no bytes orders the update",
        ),
    ],
)
