#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that is a process leaves the order of joins on purpose: it leaves one out, or brings a row
more than the others know of. Rank 0 names it, and the join, within the deadline and a second, with
memory in common and with messages. (test_dist dist_names_who does the same with threads.)

  check_broken.py [BUILD] [--times N]
"""
import os
import random
import re
import sys

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


def main():
    why = mpi.missing(BUILD)
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    rng, took = random.Random(2), []
    for carrier in ("memory", "messages"):
        broken(3, 0, 0, "none", carrier)
    for k in range(TIMES):
        n = 2 + k % 3
        took.append(broken(n, rng.randrange(n), rng.randrange(38), ("skip", "more")[k % 2],
                           ("memory", "messages")[k // 2 % 2]))
    print(f"{TIMES} times, at most {max(took):.2f} s, deadline {DEADLINE_MS / 1000} s")
    T.exit()


if __name__ == "__main__":
    main()
