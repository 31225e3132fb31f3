"""Planners that choose the layers of each device. Planners that know the step's schedule evaluate it.

`partition_table` cuts a row of layers by dynamic programming, for any measure of stages. `layer_sums` holds the times
and bytes of layers, devices and hops. `stage_measures` computes what a paper counts for a stage. These modules and
`latency`, `minimum_period`, `device_classes`, `block_merging` and `simulation` are functions of numbers alone.
`planner_input` reads the numbers from instances and converts cuts to orders.
"""
