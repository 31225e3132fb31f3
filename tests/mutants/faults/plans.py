"""Faults of the replay and search of `dag-auto`; the same texts are compiled."""

from tests.mutants.fault import faults_of

REPLAY, STATE, MODEL = "dag/plans/replay.py", "dag/plans/search_state.py", "dag/plans/model.py"
ARITHMETIC = "kit/compile/arithmetic.py"
OF_AUTO = "tests/algorithms/dag/anytime/test_dag_auto.py"
OF_TWINS = ("tests/algorithms/dag/plans/test_search.py", f"{OF_AUTO}::test_a_twin_that_writes_less_stands_in")
OF_COMPILER = ("tests/algorithms/kit/compile/test_lowering.py",)

FAULTS = faults_of(
    "algorithms/remat_algorithms",
    ("tests/algorithms/dag/plans/test_search.py",),
    [
        (
            REPLAY,
            "            written -= tables.light_spared[task]\n",
            "",
            "a twin writes less to take over inputs' bytes",
            OF_TWINS,
        ),
        (
            REPLAY,
            "level -= min(written, work.freed[place])",
            "level -= work.freed[place]",
            "in place, outputs take over no more than they need",
        ),
        (
            REPLAY,
            "1 if light == 0 or (light == 1 and is_first) else 0",
            "1 if light == 0 else 0",
            "what must run itself has no stand-in at first",
            OF_TWINS,
        ),
        (
            REPLAY,
            "max(born, last), born <= last < place)",
            "max(born, last), born <= last)",
            "who writes a value back does not free it",
        ),
        (
            REPLAY,
            "_enter(tables, work, item, value, born, last, True)",
            "_enter(tables, work, item, value, born, last, False)",
            "in place, a last read gives its bytes",
        ),
        (
            REPLAY,
            "if tables.stays[value] or tables.pinned[value]:",
            "if tables.pinned[value]:",
            "outputs stay to the end",
        ),
        (
            REPLAY,
            "if last > born and not work.full[born]:",
            "if last >= born and not work.full[born]:",
            "what nobody reads calls for no full run",
            OF_TWINS,
        ),
        (
            STATE,
            "            if not fits:\n",
            "            if not fits and room.state[STOP]:\n",
            "a plan above the budget is no plan",
        ),
        (
            STATE,
            "    room.cost[target] = room.cost[source]\n",
            "",
            "a copied plan takes its time along",
        ),
        (
            MODEL,
            "repeatable = (graph.recomputable & ~graph.once).tolist()",
            "repeatable = graph.recomputable.tolist()",
            "`once` tasks do not run again",
        ),
        (
            MODEL,
            "            and own_reads >= set(reads[other])\n",
            "",
            "a twin reads nothing else",
            OF_TWINS,
        ),
        (
            ARITHMETIC,
            'off = builder.and_(builder.icmp_signed("!=", rest, zero), signs)',
            "off = signs",
            "compiled divisions without rest are exact",
            OF_COMPILER,
        ),
    ],
)
