"""What broken rules of steps are called where these are some of a periodic schedule, written out."""

PERIODIC = {
    "resource-busy": "period-overlap",
    "read-missing": "period-precedence",
    "value-busy": "period-precedence",
    "free-missing": "period-precedence",
}
