#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ranks move, against what the shapes say (docs/distribution.md): for each row of a join every
rank takes the columns of the others, so that n ranks take n - 1 rows; logits come to rank 0 alone.
A stage takes a row of the model's columns for every rank of it and every token. In a prompt of many
tokens each rank has a share of them: outputs go to the rank that has the token, and inputs, as
products take them, to all. With dp a token's
row and the numbers of its experts go to the other ranks, and a row comes back from each expert
that is there: how many are, the counts of experts say.

  check_bytes.py [BUILD]"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "bits")]
import e2e  # noqa: E402
import wide  # noqa: E402

PROMPT, ANSWER = 11, 24
MODELS = (("llama.q4_0", 4), ("qwen3_moe.int8", 4), ("deepseek_v2.q8_0", 4),
          ("gpt_oss.mxfp4", 3), ("glm4_moe.nvfp4", 3))  # and the most ranks


def experts_of(c):
    """How many a token has, and their width."""
    return c.get("num_experts_per_tok", 0), c.get("moe_intermediate_size") or c["intermediate_size"]


def hidden(f, weights):
    """Words of hidden values that go prepared, an expert's, 64 bytes for 32 of them, where every
    rank has whole groups of 32."""
    return f // 2 if all(n % 32 == 0 for n in shares(f, 16, weights)) else f


def joined(c, spread=False, weights=(1, 1)):
    """Columns of a token's joins; spread: without the hidden values of experts."""
    heads, d = c["num_attention_heads"], c["hidden_size"]
    d_v = c.get("v_head_dim") or c.get("head_dim") or d // heads
    experts = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts") or 0
    used, f_exp = experts_of(c)
    f_exp = hidden(f_exp, weights)
    dense = c.get("first_k_dense_replace", 0) if experts else c["num_hidden_layers"]
    n = d  # a row of the table of tokens
    for il in range(c["num_hidden_layers"]):
        n += heads * d_v + d + d  # attention, its output, that of the feed-forward block
        if il < dense:
            n += c["intermediate_size"]
        else:
            n += (0 if spread else used * f_exp) + (c.get("n_shared_experts") or 0) * f_exp
    return n


def turned(c, tp):
    """Of what experts that are whole give, every rank takes its columns from the others."""
    layers = c["num_hidden_layers"] - c.get("first_k_dense_replace", 0)
    return layers * experts_of(c)[0] * c["hidden_size"] * (tp - 1) / tp


def shares(n, unit, weights):
    """By weight, in whole units: what is left over goes to the largest remainders (here every
    share is a unit at least)."""
    units, total = (n + unit - 1) // unit, sum(weights)
    got = [units * w // total for w in weights]
    order = sorted(range(len(weights)), key=lambda r: -(units * weights[r] % total))
    for r in order[:units - sum(got)]:
        got[r] += 1
    return [min(n, unit * sum(got[:r + 1])) - min(n, unit * sum(got[:r])) for r in range(len(got))]


def moved(c, tp, pp, spread=False, weights=None, tokens=PROMPT + ANSWER - 1):
    """weights: where ranks are not alike. The last token is told, not computed."""
    vocab = c["vocab_size"]
    own = (vocab + 15) // 16 // tp * 16 if tp > 1 else vocab
    if weights:
        own = shares(vocab, 16, weights)[0]
    rows = turned(c, tp) if spread else 0
    columns = joined(c, spread, weights or (1,) * tp)
    return 4 * (tokens * ((tp - 1) * columns + rows + (pp - 1) * tp * c["hidden_size"]) +
                ANSWER * (vocab - own))


def prepared(n, form):
    """Words of a row of n values as products take it: records of 64 bytes, one for each 32 values
    and one more; int8x: a second plane of them, and a list of the groups that have one."""
    groups = (n + 255) // 256 * 8
    return {"int8": 16 * (groups + 1), "int8x": 16 * (2 * groups + 1) + groups + 1,
            "int15": 16 * (2 * groups + 1)}[form]


def shared_rows(c):
    """Of a step in which each rank has a share of the tokens: columns of rows that go to one rank
    each, and words of what all ranks get of a token then."""
    heads, d, q_lora = c["num_attention_heads"], c["hidden_size"], c.get("q_lora_rank") or 0
    d_v = c.get("v_head_dim") or c.get("head_dim") or d // heads
    experts = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts") or 0
    used, f_exp = experts_of(c)
    dense = c.get("first_k_dense_replace", 0) if experts else c["num_hidden_layers"]
    latents = c.get("kv_lora_rank") or 0
    to_one, to_all = 0, 2 * d  # a row of the table; that of the last norm
    for il in range(c["num_hidden_layers"]):
        if latents:  # q_a and kv_a take a rank's own tokens
            to_all += prepared(q_lora, "int15") if q_lora else prepared(d, "int8x")
            to_all += latents + c["qk_rope_head_dim"]
        else:
            to_all += prepared(d, "int8x")
        to_one += heads * d_v + d + d
        to_all += prepared(heads * d_v, "int8x" if latents else "int8")
        if il < dense:
            to_all += prepared(d, "int8x") + prepared(c["intermediate_size"], "int8x")
            to_one += c["intermediate_size"]
        else:
            n_shared = c.get("n_shared_experts") or 0
            to_all += prepared(d, "int8") + 2 * used + (used + n_shared) * hidden(f_exp, (1, 1))
    return to_one, to_all


def check_long(tally, build, name, model, c):
    """A prompt of which each of two ranks has half of the tokens."""
    n, tp = 48, 2
    to_one, to_all = shared_rows(c)
    for pp in 1, 2:
        code, out, err = e2e.run([
            e2e.sluice(build), "run", "-m", model, "--ids",
            ",".join(str(5 + i) for i in range(n)), "-n", str(ANSWER), "--ignore-eos", "--json",
            "-q", "--layout", f"tp={tp},pp={pp}", "-t", str(tp * pp)])
        want = moved(c, tp, pp, tokens=ANSWER - 1)
        want += 4 * n * (to_one * (1 - 1 / tp) + (tp - 1) * to_all + (pp - 1) * c["hidden_size"])
        want /= n + ANSWER
        got = None if code else e2e.last_json(out)["wire_bytes_per_token"]
        tally.check(f"{name} tp={tp},pp={pp}, a prompt of {n}", code and err or
                    abs(got - want) >= 1 and f"{got}, not {want:.1f} a token")


def words(form, n):
    """Of 4 bytes, of a row of n values on its way back."""
    return {"f32": n, "bf16": (n + 1) // 2, "q8": (33 * ((n + 31) // 32) + 3) // 4}[form]


def check_dp(tally, build, work, name, model, c):
    """One request, which is rank 0's."""
    n_exp = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts")
    d, used = c["hidden_size"], experts_of(c)[0]
    layers = c["num_hidden_layers"] - c.get("first_k_dense_replace", 0)
    stats = os.path.join(work, f"{name}.stats.json")
    tokens = PROMPT + ANSWER - 1
    for n in (n for n in (2, 3, 4) if n_exp % n == 0):
        for form, how in (("f32", "gather"), ("bf16", "gather"), ("q8", "gather"), ("f32", "swap")):
            if os.path.exists(stats):
                os.unlink(stats)
            code, out, err = e2e.run([
                e2e.sluice(build), "run", "-m", model, "--ids",
                ",".join(str(5 + i) for i in range(PROMPT)), "-n", str(ANSWER), "--ignore-eos",
                "--json", "-q", "--layout", f"dp={n},ep={n}", "-t", str(n), "--combine", form,
                "--dispatch", how, "--expert-stats", stats])
            what = f"{name} dp={n},ep={n} {form} {how}"
            if code:
                tally.check(what, err)
                continue
            got = e2e.last_json(out)["wire_bytes_per_token"] * (PROMPT + ANSWER)
            with open(stats, encoding="utf-8") as f:
                back = sum(sum(l["counts"][n_exp // n:]) for l in json.load(f)["layers"])
            come = 4 * back * words(form, d)
            there = 4 * tokens * layers * (n - 1)  # to each of the other ranks
            if how == "gather":
                bad = abs(got - there * (d + used) - come) >= PROMPT + ANSWER
            else:  # a row goes to no more ranks than it has experts elsewhere
                least, most = there * used + come, there * used + come + 4 * back * d
                bad = not least < got <= min(most, least + there * d) + 1
            tally.check(what, bad and f"{got} bytes: {there * (d + used)} there, {come} back")


def check_shared(tally, build, work, name, model, c):
    """Groups of ranks that share their experts by rows: for each of a group's rows its ranks take
    each other's hidden values, and of the outputs some rows each, whole. These then go on as rows
    of whole experts do: of one group it is known how many, of several between none and all."""
    n_exp = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts")
    d, (used, f_exp) = c["hidden_size"], experts_of(c)
    layers = c["num_hidden_layers"] - c.get("first_k_dense_replace", 0)
    tokens = PROMPT + ANSWER - 1
    rows = tokens * layers * used
    for layout, g, ep in (("dp=2", 2, 1), ("tp=2,dp=2,ep=2", 2, 2)):
        if n_exp % ep or c["num_attention_heads"] % 2:
            continue
        code, out, err = e2e.run([
            e2e.sluice(build), "run", "-m", model, "--ids",
            ",".join(str(5 + i) for i in range(PROMPT)), "-n", str(ANSWER), "--ignore-eos",
            "--json", "-q", "--layout", layout, "-t", "4"])
        if code:
            tally.check(f"{name} {layout}", err)
            continue
        got = e2e.last_json(out)["wire_bytes_per_token"] * (PROMPT + ANSWER)
        n = g * ep
        want = 4 * rows * (g - 1) * hidden(f_exp, (1,) * g)  # hidden values
        want += 4 * rows * d * (g - 1) / g  # columns of outputs, where they become rows
        want += 4 * tokens * layers * (n - 1) * (d + used)  # gathered, of each rank its share
        if ep > 1:  # what two ranks share beside experts, and outputs of shared ones made whole
            want += moved(c, 2, 1, True) - 4 * tokens * turned(c, 2)
            want += 4 * tokens * layers * d * bool(c.get("n_shared_experts"))
            least, most = want, want + 4 * rows * d
        else:  # of a step's rows the second rank has what is left of half of them
            back = sum(t * used - t * used // 2 for t in [PROMPT] + [1] * (ANSWER - 1))
            least = most = want + 4 * layers * back * d
        tally.check(f"{name} {layout}", not least - 35 <= got <= most + 35 and
                    f"{got} bytes, not {least:.0f} to {most:.0f}")


def check_uneven(tally, build, work, name, model, c):
    """Ranks that are not alike: columns of a join are n - 1 rows in all whatever the shares; of
    experts that are whole each rank takes its columns of what the others' have computed."""
    n_exp = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts")
    weights, stats = (3, 2, 1), os.path.join(work, f"{name}.uneven.json")
    for ep in (1, 3) if n_exp else (1,):
        if os.path.exists(stats):
            os.unlink(stats)
        code, out, err = e2e.run([
            e2e.sluice(build), "run", "-m", model, "--ids",
            ",".join(str(5 + i) for i in range(PROMPT)), "-n", str(ANSWER), "--ignore-eos",
            "--json", "-q", "--layout", f"tp=3,ep={ep},weight=3:2:1", "-t", "3",
            *(["--expert-stats", stats] if n_exp else [])])
        want = moved(c, 3, 1, weights=weights)
        if not code and ep > 1:
            columns, experts = shares(c["hidden_size"], 16, weights), shares(n_exp, 1, weights)
            tokens = PROMPT + ANSWER - 1
            want -= 4 * tokens * 2 * (joined(c, False, weights) - joined(c, True, weights))
            with open(stats, encoding="utf-8") as f:
                for layer in json.load(f)["layers"]:
                    for r in range(3):
                        at = sum(experts[:r])
                        ours = sum(layer["counts"][at:at + experts[r]])
                        want += 4 * columns[r] * (sum(layer["counts"]) - ours)
        want /= PROMPT + ANSWER
        got = None if code else e2e.last_json(out)["wire_bytes_per_token"]
        tally.check(f"{name} tp=3,ep={ep},weight=3:2:1", code and err or
                    abs(got - want) >= 1 and f"{got}, not {want:.1f} a token")


def check_bf16(tally, build, work):
    """Hidden values that products take as bf16, those of bf16 matrices, go as these."""
    name = "llama.bf16"
    model = wide.make(work, e2e.sluice(build), name, e2e.tiny(build))
    c = wide.CONFIGS["llama"]
    f, layers = c["intermediate_size"], c["num_hidden_layers"]
    code, out, err = e2e.run([
        e2e.sluice(build), "run", "-m", model, "--ids", ",".join(str(5 + i) for i in range(PROMPT)),
        "-n", str(ANSWER), "--ignore-eos", "--json", "-q", "--layout", "tp=2", "-t", "2"])
    want = moved(c, 2, 1) - 4 * (PROMPT + ANSWER - 1) * layers * (f - hidden(f, (1, 1)))
    want /= PROMPT + ANSWER
    got = None if code else e2e.last_json(out)["wire_bytes_per_token"]
    tally.check(f"{name} tp=2", code and err or f % 64 and "an odd share" or
                abs(got - want) >= 1 and f"{got}, not {want:.1f} a token")


def check_model(tally, build, work, name, most):
    model = wide.make(work, e2e.sluice(build), name, e2e.tiny(build))
    c = wide.CONFIGS[name.split(".")[0]]
    n_exp = c.get("n_routed_experts") or c.get("num_experts") or c.get("num_local_experts")
    if n_exp:
        check_dp(tally, build, work, name, model, c)
        check_shared(tally, build, work, name, model, c)
    check_uneven(tally, build, work, name, model, c)
    check_long(tally, build, name, model, c)
    ranks = [(n, 1, 1) for n in range(2, most + 1)] + [(1, 1, 2), (2, 1, 2)]
    if n_exp:
        ranks += [(n, n, 1) for n in range(2, most + 1) if n_exp % n == 0] + [(2, 2, 2)]
    for tp, ep, pp in ranks:
        code, out, err = e2e.run([
            e2e.sluice(build), "run", "-m", model, "--ids",
            ",".join(str(5 + i) for i in range(PROMPT)), "-n", str(ANSWER), "--ignore-eos",
            "--json", "-q", "--layout", f"tp={tp},ep={ep},pp={pp}", "-t", str(tp * pp)])
        want = moved(c, tp, pp, ep > 1) / (PROMPT + ANSWER)
        got = None if code else e2e.last_json(out)["wire_bytes_per_token"]
        tally.check(f"{name} tp={tp},ep={ep},pp={pp}", code and err or
                    abs(got - want) >= 1 and f"{got}, not {want:.1f} a token")


def main():
    build = e2e.build_dir()
    tally = e2e.Tally("bytes between ranks")
    work = os.path.join(build, "tests", "ranks_bytes")
    os.makedirs(work, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:  # starting is what most runs take, on one core each
        jobs = [pool.submit(check_model, tally, build, work, name, most) for name, most in MODELS]
        jobs.append(pool.submit(check_bf16, tally, build, work))
    for job in jobs:
        job.result()
    tally.exit()


if __name__ == "__main__":
    main()
