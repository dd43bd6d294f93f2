# SPDX-License-Identifier: Apache-2.0
"""Runs of the program, for the oracles: what it prints, and a model's logits."""
import os
import subprocess
import tempfile

import numpy as np


def sluice(exe, *args, timeout=3000):
    """What the command prints; RuntimeError with its line where it fails."""
    p = subprocess.run([exe, *args], capture_output=True, text=True, timeout=timeout)
    if p.returncode:
        raise RuntimeError(f"exit {p.returncode}: {p.stderr.strip()[:400]}")
    return p.stdout


def logits(exe, model, ids, *flags):
    """float32[len(ids), vocabulary] of `sluice eval` on the model's file or folder."""
    with tempfile.TemporaryDirectory() as work:
        tokens, raw = os.path.join(work, "ids"), os.path.join(work, "logits")
        with open(tokens, "w") as f:
            f.write(",".join(map(str, ids)) + "\n")
        sluice(exe, "eval", "-m", model, "--ids-file", tokens, "--dump-logits", raw, "-q", *flags)
        z = np.fromfile(raw, np.float32)
    if z.size == 0 or z.size % len(ids):
        raise RuntimeError(f"{z.size} logits for {len(ids)} tokens")
    return z.reshape(len(ids), -1)
