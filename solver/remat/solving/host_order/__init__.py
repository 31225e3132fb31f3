"""Schedules with a host as programs that a host issues, in order, to one compute stream and one stream per direction.

A program has four operations. `Run` and `Copy` are issued and return at once; memory is taken when they are issued, in
program order, as a caching allocator does it. `Wait` makes the compute stream wait for a copy, and then frees the
values that the copy has released. The bytes in use therefore depend on the order alone, and not on any speed.

A placed schedule frees and takes bytes whenever a copy ends or begins, also during a run. A program cannot. `move`
therefore starts every copy of a schedule between two runs, and the verifier checks the moved schedule separately.
"""
