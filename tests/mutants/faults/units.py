"""Faults of reading and printing sizes and times."""

from tests.mutants.fault import faults_of

UNITS = "units.py"

FAULTS = faults_of(
    "solver/remat",
    ("tests/test_units.py",),
    [
        (
            UNITS,
            'if number > LARGEST_SIZE:\n        raise QuantityError(f"{shown}',
            'if number >= LARGEST_SIZE:\n        raise QuantityError(f"{shown}',
            "the largest size is a size",
        ),
        (
            UNITS,
            "rate = size * _TIME_FACTORS[units.time] / _TIME_FACTORS[time_text.strip()]",
            "rate = size * _TIME_FACTORS[time_text.strip()] / _TIME_FACTORS[units.time]",
            "a bandwidth is per the instance's unit of time",
        ),
        (
            UNITS,
            "if suffix and units is not None and units.memory",
            'if suffix != "B" and suffix and units is not None and units.memory',
            "an instance that counts in units knows no bytes",
        ),
        (
            UNITS,
            "if whole and number <= LARGEST_SIZE and number",
            "if number <= LARGEST_SIZE and number",
            "a float time stays a float",
        ),
        (
            UNITS,
            'seconds = float(f"{Decimal(time) * _TIME_FACTORS[unit]:.5g}")',
            "seconds = float(Decimal(time) * _TIME_FACTORS[unit])",
            "the digits that are printed choose the unit",
        ),
    ],
)
