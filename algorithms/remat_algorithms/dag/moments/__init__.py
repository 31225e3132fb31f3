r"""Moment programs: which values are resident, offloaded or recomputed at some moments of every schedule.

A *moment* is the start of a specific task's first run, at which the memory is bounded. The programs cover one processor
and its memory, and optionally secondary memories, which links connect to it. Tasks may run in place, run only once,
need workspace, and write several values. A value may have several producers (alternatives), may begin in any memory,
may be pinned, and may have to end in any memory. `Setting.of` decides whether the programs cover a problem, and
`Setting.ask` solves one.

**Moments.** Moment j is the start of the first run of task w_j. Every schedule runs w_1, ..., w_q, and first runs them
in this order in every schedule of the class. Stretch 0 is the time before moment 1. Stretch j is the time from moment j
to moment j+1 or to the end. There are two classes. `Listed` contains the schedules whose required tasks first run in a
given order; a task whose outputs no task reads may run later instead. `Free` contains all schedules.

    R_k,j in {0,1}   task k has run before moment j
    S_v,j            value v is in the processor's memory at moment j
    K_v,j            v is still there after the moment's run, if that run reads v in place; else K_v,j = S_v,j
    H_v,m,j          v is in secondary memory m;  F_v,j: v is fetched in stretch j
    X_k,j in {0,1}   task k reruns in stretch j; for an optional task in the last stretch: it runs at all
    Z_k,j in {0,1}   the same for all stretches from j on
    W_j              time of stretch j in which no run takes place that other variables count

Without secondary memories, S, K, H and F are 0 or 1. With them, they are shares of a value's bytes, since parts may be
moved. R is known for most tasks: in a listed order of all required tasks, otherwise for the ancestors and descendants
of w_j. Let n_k,j = R_k,j+1 - R_k,j + X_k,j, which is 0 only if k does not run in stretch j. Let there_v,j = K_v,j +
F_v,j + the sum of n_k,j over the producers k of v. Then

    R_k,j <= R_k,j+1;  R_k,j <= sum of R_l,j over the producers l of u     k reads u, which begins in no memory
    S_v,1 <= sum of R_k,1;  S_v,j+1 <= there_v,j                            k computes v
    X_k,j <= there_u,j;  R_k,j+1 - R_k,j <= there_u,j                       k reads u
    1 <= there_v,q                                                          v must be resident at the end
    1 <= K_v,q + sum of H_v,m,q + sum of n_k,q                              v must be in another memory at the end
    F_v,j <= sum of H_v,m,j;  H_v,m,j <= sum of R_k,j                       v begins in no memory
    1 - R_c,j <= K_v,j + sum of H_v,m,j + sum of Z_k,j + 1 - R_k,j          c reads v, and k computes it
    Z_c,j <= the same;  X_k,i <= Z_k,j for i >= j;  Z_k,j <= sum of X_k,i
    sum of M_v S_v,j + bytes that the run of w_j adds <= budget             v not written by w_j
    sum of M_v H_v,m,j <= bytes of memory m

A run in place adds max(0, written - freed) + workspace. This row appears twice: once with all inputs freed, and once
with those freed that K does not keep. Values that w_j reads, and pinned ones, have S = 1.

**Transfers.** D is a set of secondary memories: all of them, and each subset that matters. Let t_v be the minimum time
for which value v occupies the links into D, or out of it: latency + size / bandwidth on one channel. A part of v takes
at least the same part of t_v. Elapsed_j is the time of stretch j: the first runs of required tasks in it, W_j, and all
X and R of other tasks.

    sum of t_v H_v,D,1 over v first complete after time a   <= elapsed_0 - a
    sum of t_v max(0, H_v,D,j+1 - H_v,D,j)                  <= elapsed_j + t'                 `Listed`
    sum of t_v F_v,j over v first needed b before the end   <= elapsed_j - b
    sum of t_v (1 - H_v,D,q) over v that must end in D      <= elapsed_q + t'
    sum of t_v over v that begin in D only, needed by c     <= elapsed_0 - c

The program has these rows for some of all values a, b and c. In every schedule, at least time a passes before such a
value is complete, and at least time b after its first need. H_v,D,j counts bytes that have arrived, and S counts bytes
that are allocated. One transfer of each channel, of at most t', may therefore be in progress at a moment, and counts in
the stretch in which it began. If both directions use one channel, both sums share its time. If the channel is the
processor, only W is time. These rows round the times of first runs up, and all other times down.

**The bound.** The minimum of the sum of W, of time_k X_k, and of the times of optional tasks that ran is a lower bound.
It bounds the time that any schedule of the class takes in addition to the required tasks. Each row holds for every
schedule. Any choice of moments is therefore valid, and more moments give a stronger bound. `program_solution` solves
the relaxation, whose prices prove its bound in exact integers (`remat_algorithms.kit.programs.relaxation`), and then
the integer program by CP-SAT. CP-SAT moves transfers in fixed parts of a value, rounded up, and the rows are relaxed by
that rounding.

**The solution** at the fullest moment of a training graph is nearly a plan. `plan_from_moment.runs_of` runs all tasks
up to the moment as listed, and then recomputes each missing value when it is needed.

Without secondary memories, with one moment, one producer per value and one order, the program is a minimum cut with one
side constraint (memory). The gap of its relaxation is then less than one step between adjacent cuts.

| module | |
|---|---|
| `integer_facts` | a problem in integers |
| `before_first_run`, `secondary_memory` | the class of schedules; the secondary memories and their links |
| `formulation_terms`: `formulation`, `transfer_rows` | variables and rows |
| `program_solution`, `one_moment` | relaxation, CP-SAT, limits of work; an exact sweep for one moment |
| `precedence` | ancestors, descendants, and full moments |
| `peak`, `unconditional_bound` | the fullest moment, for one order and for all schedules |
| `bounds`, `plan_from_moment` | a bound on the makespan; a sequence of runs |
"""
