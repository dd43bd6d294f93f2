#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make (once) the Python environment of the oracles, outside the tree, and print the path of its
# interpreter. Everything comes from PyPI, in pinned versions.
#   PY=$(tests/oracle/venv.sh) && $PY tests/oracle/check_tokenizers.py build
# SLUICE_VENV names another place or an environment that is there already.
set -eu
dir=${SLUICE_VENV:-$HOME/.cache/sluice/venv}
if [ ! -x "$dir/bin/python" ]; then
    python3 -m venv "$dir" >&2
fi
if ! "$dir/bin/python" \
    -c 'import torch, transformers, gguf, tokenizers, jinja2, safetensors' 2>/dev/null
then
    # torch without its GPU libraries is a third of the size; the wheel index that has it is not
    # PyPI, so the plain wheel is taken.
    "$dir/bin/python" -m pip install -q --disable-pip-version-check \
        numpy==2.4.6 gguf==0.19.0 tokenizers==0.23.3 jinja2==3.1.6 safetensors==0.8.0 \
        torch==2.15.0 transformers==5.23.0 >&2
fi
echo "$dir/bin/python"
