#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layouts from the planner start: a description of ranks (as doctor --ranks writes them) -> plan
--this-cluster --emit -> the command that plan prints, on this machine, with weights that are made
up (--mock) -> it answers, with the tokens that one rank gives.

  check_plan.py [BUILD] [--some|--all]"""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import mpi  # noqa: E402

BUILD = e2e.build_dir()
SLUICE = e2e.sluice(BUILD)
tally = e2e.Tally("plan_starts")
BASE = dict(vocab_size=512, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=2048,
            tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16")
MOE = dict(BASE, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=256,
           intermediate_size=256, num_hidden_layers=6, num_attention_heads=8,
           num_key_value_heads=4, head_dim=32, attention_bias=False, rope_theta=1e6,
           decoder_sparse_step=1, moe_intermediate_size=128, num_experts_per_tok=4, num_experts=16,
           norm_topk_prob=True, mlp_only_layers=[])
V3 = dict(BASE, architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3",
          attention_bias=False, hidden_size=256, intermediate_size=256, num_hidden_layers=5,
          num_attention_heads=8, num_key_value_heads=8, q_lora_rank=64, kv_lora_rank=64,
          qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=16,
          num_experts_per_tok=4, moe_intermediate_size=128, n_shared_experts=1, n_group=4,
          topk_group=2, topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True,
          routed_scaling_factor=2.5, first_k_dense_replace=1, moe_layer_freq=1,
          num_nextn_predict_layers=0, rope_theta=10000.0)
DENSE = dict(BASE, architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=256,
             intermediate_size=512, num_hidden_layers=6, num_attention_heads=8,
             num_key_value_heads=2, head_dim=32, attention_bias=False, rope_theta=1e6)
IDS = [5, 17, 301, 44, 9, 120, 77, 8]
N_NEW = 12


def ranks(*hosts, gbps=100.0, mem=64e9, us=5.0, net=(100.0, 1.0)):
    """hosts: ranks of each; within one joins take us, between several net (us, GB/s). gbps: of all,
    or of the ranks of each host."""
    far = net if len(hosts) > 1 else (us, 10.0)
    read = gbps if isinstance(gbps, tuple) else (gbps,) * len(hosts)
    return {"ranks": [{"host": f"h{h}", "read_gbps": read[h], "int8_gops": 2000.0, "op_us": 2.0,
                       "mem_available": mem} for h, n in enumerate(hosts) for _ in range(n)],
            "join_us": far[0], "join_gbps": far[1], "host_join_us": us, "host_join_gbps": 10.0,
            "hop_us": far[0], "hop_gbps": far[1]}


# name, model, description, what is asked; what the layout must be (None: whatever is best)
MACHINES = [
    ("two sockets, one user", MOE, ranks(2), ["--concurrency", "1"], None),
    ("two boxes, little memory", MOE, ranks(1, 1, mem=0.9e9), ["--layout", "pp2"], "pp=2"),
    ("four boxes, many users", V3, ranks(1, 1, 1, 1), ["--layout", "dp4ep4", "--concurrency", "8",
                                                       "--combine", "q8"], "dp=4,ep=4"),
    ("one socket", DENSE, ranks(1), [], ""),
    ("two sockets, dense", DENSE, ranks(2), ["--goal", "tpot", "--concurrency", "1"], None),
    ("two boxes of two sockets", DENSE, ranks(2, 2), ["--layout", "tp2pp2"], "tp=2,pp=2"),
    ("experts whole", MOE, ranks(4), ["--layout", "tp4ep4"], "tp=4,ep=4"),
    ("experts whole in two stages", V3, ranks(2, 2), ["--layout", "tp2ep2pp2"], "tp=2,pp=2,ep=2"),
    ("two boxes, many users", MOE, ranks(1, 1), ["--concurrency", "16", "--goal", "tps"], None),
    ("three stages", DENSE, ranks(1, 1, 1), ["--layout", "pp3"], "pp=3"),
    ("slow network", V3, ranks(2, 2, net=(2000.0, 0.01)), ["--concurrency", "1"], None),
    ("an old box beside a new one", DENSE, ranks(1, 1, gbps=(200.0, 100.0), net=(5.0, 10.0)),
     ["--layout", "tp2", "--concurrency", "1"], "tp=2,weight=2:1"),
    ("eight ranks", V3, ranks(4, 4), ["--layout", "tp2dp2pp2", "--concurrency", "4"],
     "tp=2,pp=2,dp=2,ep=4"),
]


def folder(work, config, name):
    d = os.path.join(work, name)
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(config, f)
    return d


def planned(work, i, model):
    name, _, machine, asked, want = MACHINES[i]
    file, emit = os.path.join(work, f"ranks{i}.json"), os.path.join(work, f"plan{i}.json")
    with open(file, "w") as f:
        json.dump(machine, f)
    code, out, err = e2e.run([SLUICE, "plan", "--this-cluster", file, "-m", model, "--weights",
                              "bf16", "--input", "64", "--output", "32", "--emit", emit, *asked])
    if code:
        return None, f"plan: exit {code}: {err[-300:]}"
    made = json.load(open(emit))
    if want is not None and made.get("layout", "") != want:
        return None, f"layout {made.get('layout')}, not {want}"
    n = re.search(rb"^start: (?:mpirun -n (\d+) )?", out, re.M)
    return (emit, int(n[1] or 1), made), None if n else "no line that starts it"


def answer(port):
    body = {"model": "m", "prompt": IDS, "max_tokens": N_NEW, "ignore_eos": True,
            "return_token_ids": True, "temperature": 0}
    r = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                               json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=60) as f:
        return json.load(f)["choices"][0]["token_ids"]


def served(model, emit, n):
    """Tokens of a server that was started as the planner says; or a text that says why not."""
    args = [SLUICE, "serve", "--config", emit, "--mock", "-m", model, "--port", "0", "-t", "1",
            "--alias", "m"]
    if n > 1:
        args = mpi.command((n, args))
    p = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    timer = threading.Timer(120, mpi.end, (p,))
    timer.start()
    text = ""
    try:
        for line in p.stderr:
            text += line
            m = re.search(r"listening on http://[^:]*:(\d+)", line)
            if m:
                return answer(int(m[1])), None
        return None, f"does not listen: {text[-400:]}"
    except OSError as e:
        return None, f"no answer: {e}"
    finally:
        timer.cancel()
        mpi.end(p)
        p.wait()


def alone(model, combine):
    code, out, err = e2e.run([SLUICE, "run", "--mock", "-m", model, "-t", "1", "--ids",
                              ",".join(map(str, IDS)), "-n", str(N_NEW), "--ignore-eos", "--json",
                              "--combine", combine])
    return e2e.last_json(out)["tokens"] if code == 0 else f"run: exit {code}: {err[-300:]}"


def main():
    which = range(len(MACHINES)) if "--all" in sys.argv else range(3)
    why = mpi.missing(BUILD)
    if why:
        print(f"plan_starts: skipped: {why}")
        sys.exit(77)
    started = 0
    with tempfile.TemporaryDirectory() as work:
        models = {id(c): folder(work, c, f"m{k}") for k, c in enumerate((MOE, V3, DENSE))}
        for i in which:
            name, config = MACHINES[i][:2]
            model = models[id(config)]
            made, fault = planned(work, i, model)
            if not fault:
                got, fault = served(model, made[0], made[1])
            if not fault:
                one = alone(model, made[2].get("combine", "f32"))
                fault = got != one and f"tokens {got}, of one rank {one}"
            started += not fault
            layout = made[2].get("layout", "one rank") if made else "?"
            tally.check(f"{name}: {layout}", fault)
    print(f"{started} of {len(which)} answer")
    tally.exit()


main()
