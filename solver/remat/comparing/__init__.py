"""Batch runs: instances x algorithms x budgets x seeds, in worker processes, kept in a journal.

``plan`` says what is to be done, ``journal`` what has been done, ``worker`` does one job in a process of its
own, ``supervision`` holds it to its limits, ``executors`` run many at once, ``comparison`` draws the sum.
"""
