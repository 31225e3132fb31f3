"""Schedules: steps in columns, the document, and the operations and actions of time loops."""
