"""Fuzzing of the whole product: drawn instances, every algorithm, and judges that share no code with it.

``python -m tests.fuzz --solves 20000 --seed 1 --jobs 2`` (``make fuzz FUZZ="..."``). A case is an instance, one or two
budgets and every algorithm that accepts it, all of it drawn from one number, the case's seed.
"""
