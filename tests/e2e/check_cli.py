#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden tests of the command line: cli/NAME.sh against NAME.stdout.exact, NAME.exit and
NAME.stderr.re.

  check_cli.py [BUILD [NAME...]]

Each script runs with sh -eu in an empty folder; $SLUICE is the program, $TINY the tiny checkpoints,
$DATA tests/data. No .exit file means 0; no .stderr.re means that stderr is not looked at; its lines
are Python regular expressions that must match the lines of stderr one by one. Where none looks at
stderr SLUICE_QUIET is set, without which each `run` measures the machine for its last line; a
script that needs what this hides unsets it.
"""
import os
import re
import sys

import e2e


def first_difference(out, want):
    """Of two lists of lines that are not the same."""
    i = next((i for i, (a, b) in enumerate(zip(out, want)) if a != b), min(len(out), len(want)))
    return f"stdout line {i + 1}: {out[i:i + 1]}, not {want[i:i + 1]}"


def main():
    exe, tiny = e2e.sluice(), e2e.tiny()
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cli")
    tally, only = e2e.Tally("command line"), set(sys.argv[2:])
    env = dict(SLUICE=exe, TINY=tiny, DATA=e2e.DATA, HOME="/nonexistent")
    for name in sorted(f[:-3] for f in os.listdir(here) if f.endswith(".sh")):
        if only and name not in only:
            continue

        def part(suffix, base=f"{here}/{name}"):
            return open(base + suffix, "rb").read() if os.path.exists(base + suffix) else None
        quiet = {} if os.path.exists(f"{here}/{name}.stderr.re") else {"SLUICE_QUIET": "1"}
        with e2e.scratch() as tmp:
            code, out, err = e2e.run(["sh", "-eu", f"{here}/{name}.sh"], cwd=tmp,
                                     env={**env, **quiet})
        want = int(part(".exit") or 0)
        bad = []
        if code != want:
            bad.append(f"exit {code}, not {want}; stderr {err.strip()[:300]!r}")
        exact = part(".stdout.exact")
        if exact is not None and out != exact:
            bad.append(first_difference(out.split(b"\n"), exact.split(b"\n")))
        pattern = part(".stderr.re")
        if pattern is not None:
            lines, res = err.strip("\n").split("\n"), pattern.decode().strip("\n").split("\n")
            if len(lines) != len(res) or not all(map(re.fullmatch, res, lines)):
                bad.append(f"stderr {err[:600]!r} does not match {res}")
        if exact is None and pattern is None:
            bad.append("nothing to compare with")
        tally.check(name, "; ".join(bad))
    tally.exit()


if __name__ == "__main__":
    main()
