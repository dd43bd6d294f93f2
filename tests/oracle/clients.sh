#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make (once) an environment of other people's clients, in versions that work with each other, and
# print the path of its interpreter.
#   PY=$(tests/oracle/clients.sh) && $PY tests/oracle/serve_agents.py build
# clients.sh [2|3]: by the major version of the openai package, default 2. Clients are not free to
# mix: pydantic-ai 2.68 reads members of answers that openai has from 3.31 on, llama-index knows
# openai only before 3. So 3 has no llama-index.
set -eu
openai=${1:-2}
dir=${SLUICE_CLIENTS_VENV:-$HOME/.cache/sluice/clients$openai}
case $openai in
2)
    ask="openai==2.54.0 pydantic-ai-slim[openai]==2.31.1 openai-agents==0.20.0
        llama-index-llms-openai-like==0.8.1"
    mod=llama_index.llms.openai_like
    ;;
3)
    ask="openai==3.57.0 pydantic-ai-slim[openai]==2.68.0 openai-agents==0.24.0"
    mod=openai
    ;;
*)
    echo "clients.sh: 2 or 3" >&2
    exit 2
    ;;
esac
if [ ! -x "$dir/bin/python" ]; then
    python3 -m venv "$dir" >&2
fi
if ! "$dir/bin/python" -W ignore -c "import pydantic_ai.models.openai, agents, langchain_openai, \
anthropic, litellm, $mod" >/dev/null 2>&1
then
    "$dir/bin/python" -m pip install -q --disable-pip-version-check $ask \
        langchain-openai==1.7.4 anthropic==2.14.0 litellm==1.110.2 >&2
fi
echo "$dir/bin/python"
