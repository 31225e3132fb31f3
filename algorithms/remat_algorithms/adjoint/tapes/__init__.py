"""Loops whose reverse steps read a stored tape: schedules keep states, tapes, or both."""
