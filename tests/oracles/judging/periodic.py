"""Names of rules that the unrolled steps of a periodic schedule break."""

PERIODIC = {
    "resource-busy": "period-overlap",
    "read-missing": "period-precedence",
    "value-busy": "period-precedence",
    "free-missing": "period-precedence",
}
