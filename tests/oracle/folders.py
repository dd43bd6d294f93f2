# SPDX-License-Identifier: Apache-2.0
"""The tensors of a folder, for the checks of quantised folders."""
import os

from safetensors import safe_open


def tensors(folder):
    out = {}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".safetensors"):
            with safe_open(os.path.join(folder, f), "pt") as st:
                out.update({k: st.get_tensor(k) for k in st.keys()})
    return out
