"""Batch runs: instances x algorithms x budgets x seeds, in worker processes, recorded in a journal.

``plan`` lists the jobs, ``journal`` records their answers, ``worker`` executes one job in a separate process,
``supervision`` enforces its limits, ``executors`` run many jobs at once, and ``comparison`` summarises the answers.
"""
