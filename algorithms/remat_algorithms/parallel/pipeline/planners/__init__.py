"""Planners: which layers each device holds. Those that know the step's schedule judge by it.

`table` cuts a row of layers by dynamic programming, for any measure of stages; `rows` says what layers, devices and
hops take; `measures` what a paper counts for a stage. These, `latency`, `periods`, `by_type`, `merging` and
`simulation` are functions of figures alone; `planning` reads them out of instances, and makes orders of cuts.
"""
