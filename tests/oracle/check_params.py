# SPDX-License-Identifier: Apache-2.0
"""Every parameter that the openai and anthropic packages can send has a row in docs/api.md: what a
new version of them brings is seen here first. By hand: needs openai and anthropic.

    venv/bin/python tests/oracle/check_params.py
"""
import os
import sys
import typing

from anthropic.types import message_count_tokens_params as count
from anthropic.types import message_create_params as message
from anthropic.types.beta import message_count_tokens_params as beta_count
from anthropic.types.beta import message_create_params as beta_message
from openai.types import completion_create_params as text
from openai.types import embedding_create_params as embedding
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OPENAI, ANTHROPIC = "| field | chat |", "| field | | type |"
PARAMS = [  # what it is, the type, the table, the column in it
    ("chat", chat.CompletionCreateParamsBase, OPENAI, 1),
    ("completions", text.CompletionCreateParamsBase, OPENAI, 2),
    ("responses", responses.ResponseCreateParamsBase, OPENAI, 3),
    ("embeddings", embedding.EmbeddingCreateParams, OPENAI, 4),
    ("messages", message.MessageCreateParamsBase, ANTHROPIC, 1),
    ("messages, beta", beta_message.MessageCreateParamsBase, ANTHROPIC, 1),
    ("count_tokens", count.MessageCountTokensParams, ANTHROPIC, 1),
    ("count_tokens, beta", beta_count.MessageCountTokensParams, ANTHROPIC, 1)]


def rows(head):
    """{field: the cells of its rows} of the table that begins so."""
    with open(os.path.join(ROOT, "docs", "api.md")) as f:
        doc = f.read()
    out = {}
    for line in doc[doc.index(head):].split("\n")[2:]:
        if not line.startswith("|"):
            return out
        cell = [c.strip() for c in line.strip("|").split("|")]
        out.setdefault(cell[0].strip("`"), []).append(cell)
    return out


bad = 0
for what, cls, head, column in PARAMS:
    table = rows(head)
    names = set(typing.get_type_hints(cls)) - {"stream"} | {"model"}
    lack = sorted(n for n in names if not any(c[column] for c in table.get(n, [])))
    print(f"{what}: {len(names)} parameters, {len(lack)} without a row"
          + (": " + " ".join(lack) if lack else ""))
    bad += len(lack)
sys.exit(1 if bad else 0)
