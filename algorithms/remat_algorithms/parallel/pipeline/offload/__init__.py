"""Pipelines whose devices may offload values to a host and fetch them for the backward."""
