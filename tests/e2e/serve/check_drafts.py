# SPDX-License-Identifier: Apache-2.0
"""Drafts of an engine that servers attach to: answers are those without, whole and as streams, and
what became of the drafts arrives: timings, usage of predictions, metrics.

  check_drafts.py [BUILD]
"""
import time

from serve import Engine, Server, chat
import e2e

T = e2e.Tally("serve: drafts")
CHAT = "/v1/chat/completions"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": {
    "type": "object", "properties": {"alpha": {"type": "integer"},
                                     "beta": {"enum": ["red", "blue"]},
                                     "gamma": {"type": "boolean"}},
    "required": ["alpha", "beta", "gamma"], "additionalProperties": False}}}
ASKED = [
    dict(),
    dict(temperature=1, seed=1),
    dict(temperature=1.2, seed=2, top_k=50, top_p=0.95, frequency_penalty=0.5, logit_bias={"5": 3}),
    dict(temperature=0.8, seed=4, logprobs=True, top_logprobs=3),
    dict(temperature=1, seed=5, response_format=SCHEMA, ignore_eos=False),
    dict(seed=6, stop=["\n", "e."], ignore_eos=False),
    dict(temperature=1, seed=3, n=3),  # timings are those of the sample that ends last
]
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
RIGHT = "vllm:spec_decode_num_accepted_tokens_total"


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def body(i, **more):
    return chat(f"Write about the number {i}.",
                **{"max_tokens": 60, "ignore_eos": True, "return_token_ids": True, **ASKED[i],
                   **more})


def ask(s, i, **more):
    status, answer = s.post(CHAT, body(i, **more))[:2]
    if status != 200:
        need(f"{ASKED[i]} is answered", False, answer)
    return answer


def streamed(s, i):
    """(text, log probabilities, end) of each choice; the last timings"""
    out, timings = {}, None
    for e in s.stream(CHAT, body(i, stream_options={"include_usage": True}))[1]:
        if e == "[DONE]":
            break
        timings = e.get("timings", timings)
        for c in e["choices"]:
            had = out.setdefault(c["index"], ["", [], None])
            had[0] += c["delta"].get("content") or ""
            had[1] += (c.get("logprobs") or {}).get("content") or []
            had[2] = c["finish_reason"] or had[2]
    return out, timings


def counted(s, name, want):
    """The metric, which comes with the engine's next word."""
    end = time.time() + 5
    while (got := s.metric(name)) != want and time.time() < end:
        time.sleep(0.02)
    return got


def count(n, timings):
    """n and the drafts, and the right ones, of an answer, which tells of any that there are."""
    n[0] += timings.get("draft_n", 0)
    n[1] += timings.get("draft_n_accepted", 0)
    return n


def same(s, want, how, which):
    """Each of these twice; the sum of drafts, and of right ones, that the answers tell of."""
    n = [0, 0]
    for i in which:
        w, got = want["whole"][i], ask(s, i)
        need(f"{how}: {ASKED[i]}", got["choices"] == w["choices"], [got["choices"], w["choices"]])
        need(f"{how}: as many tokens: {ASKED[i]}", got["usage"]["completion_tokens"] ==
             w["usage"]["completion_tokens"], got["usage"])
        count(n, got["timings"])
        w = want["stream"][i]
        got, timings = streamed(s, i)
        need(f"{how}, as a stream: {ASKED[i]}", got == w, [got, w])
        count(n, timings)
    return n


def predicted(s, want, how):
    words = want["whole"][0]["choices"][0]["message"]["content"].split(" ")
    words[len(words) // 2] = "something"
    text = " ".join(words)
    n = [0, 0]
    for _ in range(40):  # on a busy machine steps may say for a while that no drafts pay
        got = ask(s, 0, prediction={"type": "content", "content": text})
        count(n, got["timings"])
        of = got["usage"]["completion_tokens_details"]
        need(f"{how}: a predicted text changes nothing",
             got["choices"] == want["whole"][0]["choices"], got)
        if of["accepted_prediction_tokens"]:
            break
    right, wrong = of["accepted_prediction_tokens"], of["rejected_prediction_tokens"]
    need(f"{how}: its tokens are counted", 0 < right <= got["timings"]["draft_n_accepted"] and
         right + wrong <= got["timings"]["draft_n"], got)
    return n


def main():
    with Engine() as e, Server(engine=e) as s:
        want = {"whole": [ask(s, i) for i in range(len(ASKED))],
                "stream": [streamed(s, i)[0] for i in range(len(ASKED))]}
        need("without drafts none are told of", not s.metric(DRAFTED) and
             not want["whole"][0].get("timings", {}).get("draft_n"), want["whole"][0])
    for draft in (["mtp", "--draft-max", "2"], ["auto", "--max-batch", "4"]):
        how = draft[0]
        with Engine("--draft", *draft) as e, Server(engine=e) as s:
            n, more = same(s, want, how, range(len(ASKED) - 1)), predicted(s, want, how)
            n = [a + b for a, b in zip(n, more)]
            need(f"{how}: there are drafts, right and wrong", n[0] > n[1] > 0, n)
            got = [counted(s, DRAFTED, n[0]), counted(s, RIGHT, n[1])]
            need(f"{how}: metrics count what the answers tell of", got == n, [got, n])
            drafts = s.metric("vllm:spec_decode_num_drafts_total")
            need(f"{how}: and steps with drafts", 0 < drafts <= n[0], drafts)
            by_place = s.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total")
            need(f"{how}: and right ones by place", 0 < by_place <= n[1], by_place)
            need(f"{how}: and the time of making them",
                 s.metric("sluice:draft_seconds_total") > 0)
            same(s, want, how, [len(ASKED) - 1])


if __name__ == "__main__":
    main()
    T.exit()
