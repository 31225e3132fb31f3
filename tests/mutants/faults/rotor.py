"""Faults of rotor's tables: where a limit begins, and what the compiled kernel keeps."""

from tests.mutants.fault import faults_of

FAULTS = faults_of(
    "algorithms/remat_algorithms/chain/rotor",
    ("tests/algorithms/chain/rotor/test_limit.py",),
    [
        (
            "table.py",
            "return self.start - max(0, self.budget - budget) // self.unit",
            "return self.start + (-max(0, self.budget - budget) // self.unit)",
            "a limited table is filled from the lowest row with no fewer bytes than the budget",
        ),
        (
            "kernel.py",
            "        out[r] = min(value, out[r])\n",
            "        out[r] = value if value < out[r] - 1e-9 else out[r]\n",
            "the kernel keeps the least value, as its twin does, to the last digit",
            ("tests/algorithms/chain/rotor/test_forms.py",),
        ),
    ],
)
