#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_gpu under Vulkan's validation layer, synchronisation included: no message, and every
kernel's SPIR-V is valid.

  check_layers.py BUILD

77: no device, or no layer (Debian: mesa-vulkan-drivers, vulkan-validationlayers, spirv-tools).
"""
import glob
import os
import re
import struct
import subprocess
import sys
import tempfile

SAID = re.compile(r"^(?:VUID-|UNASSIGNED-|SYNC-).*", re.M)


def run(build, checks, feature):
    """What check_gpu printed with the layer and a feature of it."""
    with tempfile.TemporaryDirectory(prefix="sluice-layers-") as tmp:
        with open(os.path.join(tmp, "vk_layer_settings.txt"), "w") as f:
            for k, v in (("debug_action", "VK_DBG_LAYER_ACTION_LOG_MSG"),
                         ("report_flags", "error,warn,perf"), ("log_filename", "stdout"),
                         ("enables", f"VK_VALIDATION_FEATURE_ENABLE_{feature}_EXT")):
                f.write(f"khronos_validation.{k} = {v}\n")
        env = dict(os.environ, VK_LAYER_SETTINGS_PATH=tmp,
                   VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation")
        p = subprocess.run([os.path.join(build, "tests", "dev", "check_gpu"), "vulkan", checks],
                           capture_output=True, text=True, env=env)
    return p.returncode, p.stdout


def words(path):
    with open(path) as f:
        return [int(w, 16) for w in re.findall(r"0x([0-9a-f]{8})", f.read())]


def check_code(build):
    """The kernels that are no valid SPIR-V."""
    bad, all_ = [], sorted(glob.glob(os.path.join(build, "src", "dev", "spirv", "*.h")))
    for path in all_:
        w = words(path)
        p = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", "--scalar-block-layout"],
                           input=struct.pack(f"<{len(w)}I", *w), capture_output=True)
        if p.returncode:
            bad.append(f"{os.path.basename(path)}: {p.stderr.decode()[:200]}")
    return len(all_), bad


def main():
    build = os.path.abspath(sys.argv[1])
    code, out = run(build, "rope", "BEST_PRACTICES") # which always finds something to say
    if code == 77 or not SAID.search(out):
        print("layers: not run:", out.strip() if code == 77 else "there is no validation layer")
        return 77
    n_bad = 0
    for checks in ("sums", "rope", "rows", "moves", "attn", "long", "experts", "sends",
                   "latents", "again"):
        code, out = run(build, checks, "SYNCHRONIZATION_VALIDATION")
        said = SAID.findall(out)
        if code or said:
            n_bad += 1
            print(f"FAIL {checks}: exit {code}, {len(said)} messages:", *said[:3], sep="\n")
    try:
        n, bad = check_code(build)
    except FileNotFoundError:
        print("layers: kernels were not looked at: no spirv-val (Debian: spirv-tools)")
        return 77
    for line in bad:
        print("FAIL", line)
    print(f"layers: 10 kinds of checks and {n} kernels, {n_bad + len(bad)} bad")
    return 1 if n_bad or bad or n < 70 else 0


if __name__ == "__main__":
    sys.exit(main())
