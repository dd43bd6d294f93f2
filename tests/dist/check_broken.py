#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that is a process leaves the order of joins on purpose: it leaves one out, or brings a row
more than the others know of. Rank 0 names it, and the join, within the deadline and a second, with
memory in common and with messages. (test_dist dist_names_who does the same with threads.) And one
is stopped after a step of 0.4 s: that, too, is seen within the deadline and a second, though a rank
that is only slow would be waited for twenty of such steps.

  check_broken.py [BUILD] [--times N]
"""
import os
import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = int(sys.argv.pop(sys.argv.index("--times") + 1)) if "--times" in sys.argv else 6
sys.argv = [a for a in sys.argv if a != "--times"]
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import mpi  # noqa: E402

BUILD = e2e.build_dir()
T = e2e.Tally("broken")
DEADLINE_MS = 1500
LATE = 1 if TIMES >= 100 else 4  # allowance for machines where other tests run
SLOW = DEADLINE_MS / 1000 + LATE  # for one that is stopped; twenty of its steps are 8 s
NAMES = r"join \d+ of (columns|picked rows|gathered rows)"


def broken(n, rank, at, how, carrier):
    args = [os.path.join(BUILD, "dist_broken"), str(rank), str(at), how, str(DEADLINE_MS)]
    code, out, err, _ = mpi.run([(n, args)], env={"SL_DIST": carrier})
    name = f"{n} ranks, {rank} at {at}: {how}, {carrier}"
    m = re.match(r"(\d+\.\d+) (.*)", out)
    if not m:
        T.check(name, f"exit {code}: {out!r} {err[-400:]!r}")
        return 0
    if how == "none":
        T.check(name, m[2] != "OK" and m[2])
        return 0
    T.check(f"{name}: names it", (f"rank {rank} " not in m[2] or not re.search(NAMES, m[2])) and
            m[2])
    T.check(f"{name}: in time", float(m[1]) > LATE * (DEADLINE_MS / 1000 + 1) and m[1])
    return float(m[1])


def stopped(n, rank, at, carrier):
    args = [os.path.join(BUILD, "dist_broken"), str(rank), str(at), "stop", str(DEADLINE_MS)]
    code, out, err, _ = mpi.run([(n, args)], env={"SL_DIST": carrier})
    name = f"{n} ranks, {rank} stopped at {at}, {carrier}"
    m = re.match(r"(\d+\.\d+) rank (\d) .* gave no sign for \d+\.\d s", out)
    T.check(f"{name}: names it", (not m or int(m[2]) != rank) and f"exit {code}: {out!r} {err!r}")
    T.check(f"{name}: in time", m and not DEADLINE_MS / 1000 <= float(m[1]) <= SLOW and m[1])


def main():
    why = mpi.missing(BUILD)
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    rng, took, ways = random.Random(2), [], ("memory", "messages")
    # several at a time, for they wait, but for the row's figure
    with ThreadPoolExecutor(1 if LATE == 1 else 6) as pool:
        rest = [pool.submit(broken, 3, 0, 0, "none", carrier) for carrier in ways]
        rest += [pool.submit(stopped, 2 + k, 1, 7 + k, carrier)
                 for k in (0, 1) for carrier in ways]
        for k in range(TIMES):
            n = 2 + k % 3
            took.append(pool.submit(broken, n, rng.randrange(n), rng.randrange(38),
                                    ("skip", "more")[k % 2], ways[k // 2 % 2]))
        for job in rest:
            job.result()
        took = [job.result() for job in took]
    print(f"{TIMES} times, at most {max(took):.2f} s, deadline {DEADLINE_MS / 1000} s")
    T.exit()


if __name__ == "__main__":
    main()
