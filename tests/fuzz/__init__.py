"""Fuzz the whole product: draw instances, run every algorithm, and judge the answers with independent code.

``python -m tests.fuzz --solves 20000 --seed 1 --jobs 2 --table`` (``make fuzz FUZZ="..."``). A case is an instance, one
or two budgets, and a choice of the algorithms that accept it. The seed of a case determines all of it.

================  ======================================================================================================
module            what it does
================  ======================================================================================================
`forms`, `kinds`  draw instances; the table of forms that are drawn for each algorithm
`cases`           draw budgets, algorithms, options and seeds for an instance
`judging`         one answer: errors, warnings, time, figures, the schedule against the referee of `tests.oracles`
`comparing`       several answers: no schedule of one refutes a claim of another; minimum budgets; promises of `auto`
`truth`           tiny instances: claims over all schedules against exhaustive search, on several processors, too
`classes`         claims over classes of schedules against the metadata and exhaustive search of the class
`invariances`     the same instance written otherwise (`transformations`), as a graph, and through a file
`questions`       `remat.least_budget` against solves at its answer and against every schedule found
`command_line`    exit codes of `remat solve` and `remat verify`
`reduction`       the smallest case that breaks the same rule
`failures`        one small file for each kind of failure
================  ======================================================================================================
"""
