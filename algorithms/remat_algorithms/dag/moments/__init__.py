r"""Moment programs: what must be resident, away or made again at some moments of every schedule.

They speak of one processor, its memory, and, if asked, the memories behind it. What the tasks are is free: they may run
in place, once, need workspace, write several values; a value may have several makers (alternatives), begin anywhere,
be pinned, and have to end anywhere. `Setting.of` tells whether they know a problem, and `Setting.ask` solves a program.

**Moments.** Moment j is the start of the first run of task w_j, which every schedule runs, and w_1, ..., w_q come in
this order in every schedule of the class. Stretch 0 is the time before moment 1, stretch j that from moment j to moment
j+1 or to the end. The class is one of two: `Listed`, schedules that first run what must run in a given order (a task
whose values nobody reads may run later instead), or `Free`, all schedules.

    R_k,j in {0,1}   task k has run before moment j
    S_v,j            value v is in the processor's memory at moment j
    K_v,j            it still is when the moment's run has ended, which reads it in place; else that is S_v,j
    H_v,m,j          it is in memory m behind, and F_v,j: it is fetched in stretch j
    X_k,j in {0,1}   task k runs again in stretch j; a task that need not run: it runs, in the last stretch, at all
    Z_k,j in {0,1}   the same of all stretches from j on
    W_j              time of stretch j in which nothing runs that is counted elsewhere

S, K, H and F are 0 or 1 without memories behind; otherwise they are shares of a value's bytes: parts may be moved.
R is known of most tasks: in a listed order of all that must run, otherwise of the ancestors and descendants of w_j.
With n_k,j = R_k,j+1 - R_k,j + X_k,j, which is 0 only if k does not run in stretch j, and there_v,j = K_v,j + F_v,j +
the sum of n_k,j over the makers k of v:

    R_k,j <= R_k,j+1;  R_k,j <= sum of R_l,j over the makers l of u        k reads u, which is nowhere at the start
    S_v,1 <= sum of R_k,1;  S_v,j+1 <= there_v,j                            k makes v
    X_k,j <= there_u,j;  R_k,j+1 - R_k,j <= there_u,j                       k reads u
    1 <= there_v,q                                                          v must be here at the end
    1 <= K_v,q + sum of H_v,m,q + sum of n_k,q                              v must be elsewhere at the end
    F_v,j <= sum of H_v,m,j;  H_v,m,j <= sum of R_k,j                       v begins nowhere
    1 - R_c,j <= K_v,j + sum of H_v,m,j + sum of Z_k,j + 1 - R_k,j          c reads v, and k makes it
    Z_c,j <= the same;  X_k,i <= Z_k,j for i >= j;  Z_k,j <= sum of X_k,i
    sum of M_v S_v,j + what the run of w_j adds <= budget                   v not written by w_j
    sum of M_v H_v,m,j <= room of memory m

What a run in place adds is max(0, written - freed) + workspace: once with all that it reads freed, and once with what K
keeps. Values that w_j reads, and pinned ones, have S = 1.

**Transfers.** D is a set of memories behind; all of them, and each that matters. Let t_v be the time for which a value
occupies the ways into D, or out of it: latency + size / bandwidth on one channel; a part of it takes a part of that at
least. Elapsed_j is the time of the first runs in stretch j of what must run, W_j, and all X and R of others.

    sum of t_v H_v,D,1 over v first complete after time a   <= elapsed_0 - a
    sum of t_v max(0, H_v,D,j+1 - H_v,D,j)                  <= elapsed_j + t'                 `Listed`
    sum of t_v F_v,j over v first wanted b before the end   <= elapsed_j - b
    sum of t_v (1 - H_v,D,q) over v that must end in D      <= elapsed_q + t'
    sum of t_v over v that begin in D alone, wanted by c    <= elapsed_0 - c

for some of all a, b and c. Times a and b must have passed, or must still pass, whatever the schedule does. H_v,D,j
counts bytes that have arrived, S bytes that are allocated. So one transfer of each channel, t' at most, may be
under way at a moment, and count where it began before. Where both ways are one channel, both sums share its time; where
the channel is the processor, only W is time. Times of first runs are rounded up here, all others down.

**The bound.** The least sum of W, of time_k X_k, and of the times of what ran and need not have, is a lower bound on
the time that any schedule of the class takes on top of the tasks that must run. Each row holds for every schedule: so
any moments will do, and more of them say more. `solving` has the relaxation, whose bound is proved in whole numbers by
its prices (`kit.programs.relaxation`), and CP-SAT in whole numbers. Transfers are then in parts of a share, rounded up,
and rows give way by that much.

**The solution** at the fullest moment of a training graph is nearly a plan: `plan.runs_of` runs everything up to the
moment as listed, and makes again what is gone when it is wanted.

Without memories behind, one moment, one maker a value and one order, this is a minimum cut with one side constraint
(memory): its relaxation lacks less than one step from one cut to the next one.

| file | |
|---|---|
| `facts.py` | a problem in whole numbers |
| `orders.py`, `behind.py` | the class of schedules; the memories behind |
| `building.py`: `program.py`, `transfers.py` | variables and rows |
| `solving.py` | relaxation, CP-SAT, limits of work |
| `lineage.py` | which moments are full |
| `bounds.py`, `plan.py` | a bound on the makespan; a sequence of runs |
"""
