# SPDX-License-Identifier: Apache-2.0
"""Questions that people ask before they buy or start anything, and the answers that the planner
must give."""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

EXE = e2e.sluice()
failed = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what)
    if not ok:
        failed.append(what)


def ask(text, expect=0):
    args = [a if a.startswith("/") else a.replace("_", " ") for a in text.split()] + ["--json"]
    rc, out, err = e2e.run([EXE, "plan", *args])
    check(rc == expect, f"plan {text}: exit {rc}")
    try:
        r = json.loads(out.decode())
    except ValueError:
        check(False, f"plan {text}: no JSON: {err[:200]}")
        return {"options": [], "rejected": []}
    flat = json.dumps(r)
    check("NaN" not in flat and "Infinity" not in flat and ": null" not in flat,
          f"plan {text}: only numbers")
    return r


def best(r, goal="tps_card"):
    return next(o for o in r["options"] if goal in o["best"])


# The demo by its name; where nobody said how long, prompts and answers that its 2048 tokens take.
for said, want in (("", (1792, 256)), (" --input 1000", (1000, 512)),
                   (" --output 512", (1536, 512))):
    r = ask(f"--model demo --hardware epyc_9654{said}")
    check((r.get("input"), r.get("output")) == want, f"demo{said}: {r.get('input')}, {want}")
rc, _, err = e2e.run([EXE, "plan", "-m", "demo", "--hardware", "epyc 9654", "--input", "3000"])
check(rc == 2 and "--input 3000" in str(err), f"demo, a prompt over its context: {err[:100]}")

# R1 on 8x64 GB: 4 bits only; INT8 is too large, and by how much.
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 8")
fits = {o["weights"] for o in r["options"]}
check(fits and fits <= {"awq", "nvfp4", "w4a8"},
      f"R1 on 8 x 64 GB: only 4-bit weights: {sorted(fits)}")
for fmt in ("awq", "nvfp4"):
    check(ask(f"--model deepseek-r1 --hardware ascend-910b1 --cards 8 --weights {fmt}")["options"],
          f"{fmt} fits")
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 8 --weights int8 --layout tp8", 1)
over = r["rejected"][0]["over_gib"]
check(18 < over < 23, f"INT8 is {over:.1f} GiB a card too large")
check("4-bit" in r["cure"], f"and what would fit is said: {r['cure']}")

# R1 INT8 on 32x64 GB: mixed DP+EP; a split allows only 2P:2D.
r = ask("--model deepseek-r1 --hardware ascend-910b2 --cards 32 --weights int8 --input 128 "
        "--output 1024 --concurrency 1024")
o = best(r)
check(o["layout"]["ep"] == 32 and o["layout"]["dp"] > 1 and o["layout"]["prefill_nodes"] == 0,
      f"mixed DP+EP: {o['name']}")
four = ("--model deepseek-r1 --hardware ascend-910b2 --cards 32 --weights int8 --input 128 "
        "--output 1024 --concurrency 256")
check(ask(f"{four} --pd 2P:2D")["options"], "2P:2D fits")
for pd in ("1P:3D", "3P:1D"):
    check(not ask(f"{four} --pd {pd}", 1)["options"],
          f"{pd} does not fit: one node cannot hold INT8")

# 16 cards: TP inside a node, PP between the two.
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 16 --weights int8 --concurrency 8")
check(best(r)["layout"]["tp"] == 8 and best(r)["layout"]["pp"] == 2, f"16 cards: {best(r)['name']}")

# 160 cards: split, EP, redundant experts.
r = ask("--model deepseek-r1 --hardware cloudmatrix --cards 160 --weights int8 --rate 80 --input "
        "4096 --output 1024 "
        "--tpot-ms 50 --ttft-ms 2000")
check(best(r)["layout"]["prefill_nodes"] > 0 and best(r)["layout"]["ep"] == 320,
      f"160 cards: {best(r)['name']}")
within = [o for o in r["options"] if o["within_limits"]]
check(within and all(o["layout"]["prefill_nodes"] > 0 for o in within),
      "only split layouts hold the limits")
check(any(o["layout"]["redundant"] > 0 for o in within), "redundant experts are among the best")

# 2 cards of 64 GB + 1.25 TB of DDR: experts on the CPU.
r = ask("--model deepseek-r1 --hardware ascend-910b4 --cards 2 --host kunpeng_920_7263z --dram "
        "1280 --concurrency 1 --input 512")
check(r["options"] and all(o["layout"]["experts_on_cpu"] for o in r["options"]),
      "2 x 64 GB + 1.25 TB: experts on the CPU")
check(best(r)["tps_user"] > 5, f"and a reader can follow it: {best(r)['tps_user']:.1f} tok/s")

# One 24 GB card + 512 GB.
r = ask("--model deepseek-r1 --hardware rtx_4090 --cards 1 --host epyc_9355 --dram 512 "
        "--concurrency 1 --input 512")
check(r["options"] and all(o["layout"]["experts_on_cpu"] for o in r["options"]),
      "24 GB + 512 GB: experts on the CPU")
check({o["weights"] for o in r["options"]} <= {"w4a8", "awq", "nvfp4"},
      "in 4 bits: 8 do not fit 512 GB")

# CPU only.
r = ask("--model deepseek-r1 --hardware epyc_9755 --concurrency 1 --input 512")
check(1 < best(r)["tps_user"] < 20, f"CPU only: {best(r)['tps_user']:.1f} tok/s")

# Qwen3-30B-A3B on a laptop.
r = ask("--model qwen3-30b-a3b --hardware laptop --concurrency 1 --input 512")
check(best(r)["weights"] == "q4" and 5 < best(r)["tps_user"] < 60,
      f"laptop: {best(r)['name']}, {best(r)['tps_user']:.1f} tok/s")

# Limits and no users: as many as hold them, and more with looser ones; the same by the row.
users = []
for ms in (45, 60, 80):
    r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 8 --weights awq --layout tp8 "
            f"--mtp 0 --input 1024 --tpot-ms {ms}")
    o = best(r)
    users.append(o["concurrency"])
    check(r["concurrency_searched"] and o["within_limits"]
          and o["tpot_ms"] <= ms and r["concurrency"] == r["options"][0]["concurrency"],
          f"TPOT of {ms} ms is held by {o['concurrency']:.0f} users: {o['tpot_ms']:.1f} ms")
check(1 < users[0] < users[1] < users[2], f"the looser the limit, the more users: {users}")
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 8 --weights awq --layout tp8 --mtp 0 "
        "--input 1024 --tpot-ms 80 --ttft-ms 1500")
check(best(r)["ttft_ms"] <= 1500 and best(r)["concurrency"] < users[2],
      "a limit on the first token too")
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 8 --weights awq --layout tp8 --mtp 0 "
        "--tpot-ms 80 --max-batch 5")
check(best(r)["concurrency"] == 5, "no more than --max-batch")
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 8 --weights awq --tpot-ms 80")
check(r["search_s"] < 1 and not ask("--model qwen3-32b --hardware h20 --cards 8")[
    "concurrency_searched"], "without limits: 8 users")

# Claims that cannot be true.
rc, out, _ = e2e.run([EXE, "plan", "--model", "deepseek-r1", "--claim-gb", "289"])
check(rc == 1 and b"impossible" in out, "289 GB for R1 is flagged")
r = ask("--model deepseek-r1 --hardware ascend-910b1 --cards 16 --weights bf16", 1)
check(not r["options"] and r["rejected"], "BF16 R1 on 16 x 64 GB does not fit")

# Every answer carries a breakdown, an interval and where it comes from.
r = ask("--model qwen3-235b-a22b --hardware h20 --cards 8")
o = r["options"][0]
check(o["interval"][0] < 1 < o["interval"][1] and o[
    "confidence"] in ("calibrated", "same platform", "uncalibrated"), "confidence and interval")
check(abs(sum(v for k, v in o["step_us"].items() if k != "total")) >= o["step_us"]["total"] * 0.99,
      "the breakdown covers the step")

# Absurd but allowed numbers: an answer at once, without NaN.
for text in ("--hardware h20 --cards 100000 --concurrency 10000000",
             "--hardware h20 --cards 8 --rate 10000000",
             "--hardware h20 --cards 8 --concurrency 10000000 --chunked --input 100000 --chunk 1",
             "--hardware cloudmatrix --cards 384 --concurrency 1 --input 1 --output 1",
             "--hardware h20 --cards 7"):
    ask(f"--model deepseek-v3 --weights fp8,int8,awq {text}")

# Outputs: a sweep, a report, a config.
rc, out, _ = e2e.run([EXE, "plan", "--model", "deepseek-r1",
                      "--hardware", "ascend-910b1", "--cards", "8", "--weights", "awq",
                      "--layout", "tp8", "--mtp", "0",
                      "--sweep", "concurrency=1,2,4,8,16,32", "--json"])
sweep = json.loads(out.decode())
check(rc == 0 and [s["value"] for s in sweep] == [1, 2, 4, 8, 16, 32], "sweep over concurrency")
check(all(a["tpot_ms"] < b["tpot_ms"] and a["tps"] < b["tps"] for a, b in zip(sweep, sweep[1:])),
      "more users: slower each, more in all")
with tempfile.TemporaryDirectory() as d:
    html, emit = os.path.join(d, "r.html"), os.path.join(d, "c.json")
    rc, out, _ = e2e.run([EXE, "plan", "--model", "deepseek-r1",
                          "--hardware", "ascend-910b1", "--cards", "8", "--html", html,
                          "--emit", emit, "--explain"])
    page = open(html).read()
    check(rc == 0 and page.count("<svg") == 3 and page.count("</svg>") == 3 and "http" not in page,
          "report with three charts, no links")
    labels = re.findall(r'<text x="([\d.-]+)" y="[\d.]+" text-anchor="(\w+)">([^<]*)</text>', page)
    left = [float(x) - {"start": 0, "middle": 0.5, "end": 1}[a]
            * 12 * sum(1.0 if c.isupper() or c in "mw%@+" else 0.66 for c in t)
            for x, a, t in labels]
    check(len(labels) > 40 and min(left) >= 0,
          f"no label of the report begins left of its drawing: {min(left):.1f}")
    check(not any(re.search(r"\de[+-]?\d", t) for _, _, t in labels), "no tick in exponent form")
    check("Top/s" in page and "GiB of" in page and re.search(r"<td>[\d.]+ (ms|s|min)<td>", page),
          "units that fit")
    check(page.count("prefers-color-scheme:dark") == 2, "both themes")
    rc, _, _ = e2e.run([EXE, "plan", "--model", "deepseek-r1", "--hardware", "l4", "--html", html])
    page = open(html).read()
    check(rc == 1 and "Nothing fits. " in page and "would fit: " in page and "<svg" not in page
          and "too many</li>" in page.replace("\n", ""), "a report that nothing fits")
    e2e.run([EXE, "plan", "--model", "qwen3-0.6b", "--hardware", "h100", "--weights", "bf16",
             "--layout", "tp1", "--mtp", "0", "--chunk", "512", "--concurrency", "1",
             "--html", html])
    page = open(html).read()
    names = [t for t in re.findall(r'>([^<]*)</text>', page.split("TPOT over concurrency")[2])]
    check("8" in names and "16" not in names and "2048" not in names, "no empty part of an axis")
    check("1 concurrent request," in page and "1 candidate, 1 fits." in page, "of one")
    check(json.load(open(emit))["max-batch"] >= 1, "config for serve")
    check("model" not in json.load(open(emit)), "a shape of the table is nothing to serve")
    real = os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
    e2e.run([EXE, "plan", "--model", real, "--hardware",
             "laptop", "--input", "512", "--emit", emit])
    check(json.load(open(emit))["model"] == real, "a real file is the model of its config")
    check(b"A decode step takes" in out and b"####" in out, "the breakdown as a sentence and bars")

    # A model from its config.json, constants from three rows of one's own, and a check of the same
    # rows.
    cfg = os.path.join(d, "config.json")
    json.dump({"num_hidden_layers": 48, "hidden_size": 2048,
               "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
               "num_experts": 128, "num_experts_per_tok": 8,
               "moe_intermediate_size": 768, "intermediate_size": 6144,
               "vocab_size": 151936, "tie_word_embeddings": False,
               "max_position_embeddings": 40960}, open(cfg, "w"))
    rc, out, _ = e2e.run([EXE, "plan", "--model", cfg,
                          "--hardware", "rtx 4090", "--weights", "awq", "--json"])
    r = json.loads(out.decode())
    check(rc == 0 and abs(r["params_b"] - 30.53) < 0.05,
          f"config.json: {r['params_b']:.2f} B parameters")
    rows = os.path.join(d, "rows.csv")
    with open(rows, "w") as f:
        f.write("source_file,system,model,weights_bits,act_bits,hardware,cards,layout,concurrency,"
                "input_len,output_len,metric,value,unit,note\n")
        for n, v in ((1, 30.0), (8, 55.0), (32, 95.0), (16, 70.0)):
            f.write("mine,my engine,deepseek-r1,4,16,Ascend "
                    f"910B1,8,TP8,{n},512,512,TPOT,{v},ms,\n")
    const = os.path.join(d, "k.json")
    rc, _, err = e2e.run([EXE, "plan", "--calibrate", rows, "--engine",
                          "my engine", "--hardware", "ascend-910b1", "--constants", const])
    check(rc == 0 and "my engine" in err, "calibration from four rows")
    rc, out, _ = e2e.run([EXE, "plan", "--check", rows, "--constants", const, "--json"])
    c = json.loads(out.decode())
    check(c["mape"] < 6 and all(x["confidence"] == "calibrated" for x in c["rows"]),
          f"and they are met: {c['mape']:.1f} %")
    check(set(c["groups"][0]) >= {"system", "metric", "n", "mape", "worst", "rank"},
          "groups as the contract says")

    limit = os.path.join(d, "limit.csv")
    with open(limit, "w") as f:
        f.write("system,model,weights_bits,act_bits,hardware,cards,layout,concurrency,input_len,"
                "output_len,metric,value,unit,note\n")
        f.write("vLLM,qwen3-30b-a3b,16,16,H20 "
                "96GB,1,TP1,,2048,512,output_throughput,900,tok/s,TPOT<=50 ms\n")
        f.write("vLLM,qwen3-30b-a3b,16,16,H20 96GB,1,TP1,,2048,512,output_throughput,900,tok/s,\n")
    rc, out, _ = e2e.run([EXE, "plan", "--check", limit, "--json"])
    a, b = json.loads(out.decode())["rows"]
    check(rc == 0 and a["users"] > 8 and b["users"] == 1 and a["predicted"] > 3 * b["predicted"],
          f"a row with a limit is answered for {a['users']:.0f} users: {a['predicted']:.0f} tok/s, "
          f"for one {b['predicted']:.0f}")

    own = os.path.join(d, "own.json")
    json.dump([{"name": "My Card", "kind": "gpu", "mem_GiB": 48,
                "mem_bw_GBps": 1000, "tflops_bf16": 200, "tops_int8": 400,
                "intra_node_GBps_per_card_unidir": 25, "cards_per_node": 8}], open(own, "w"))
    rc, out, err = e2e.run([EXE, "plan", "--model", "qwen3-32b", "--hardware",
                            "my card", "--cards", "2", "--hardware-file", own, "--json"])
    check(rc == 0 and json.loads(out.decode())["hardware"] == "My Card",
          "a device of one's own from JSON")

    # This machine: a bench file of an engine whose reads and products follow one another.
    def step(batch, depth):
        experts = 128 * (1 - (1 - 8 / 128) ** batch) * 48 * 3 * 2048 * 768
        dense = 48 * (2048 * 4096 * 2 + 2 * 2048 * 512) + 151936 * 2048
        flop = 2 * batch * (dense + 48 * 8 * 3 * 2048 * 768) + batch * 48 * 4 * 4096 * (depth + 16)
        return (experts + dense) * 4.5 / 8 / 40e9 + flop / 0.5e12 + batch * 98304 * (
            depth + 16) / 30e9 + 0.002
    points = [{"test": "tg32", "batch": b, "depth": c,
               "tps": b / step(b, c), "threads": 2, "probe_gbps": 45}
              for b in (1, 2, 4, 8, 16, 32) for c in (0, 1024, 4096)]
    bench = os.path.join(d, "bench.json")
    json.dump(points, open(bench, "w"))
    rc, out, err = e2e.run([EXE, "plan", "--this-machine", "--model",
                            "qwen3-30b-a3b", "--weights", "q4", "--bench", bench, "--json"])
    m = json.loads(out.decode())
    check(rc == 0 and sum(p["fitted"] for p in m["points"]) == 3,
          "this machine: constants from three points")
    check(m["median_error_pct"] <= 10,
          f"this machine: median error {m['median_error_pct']:.1f} % on the others")

    # A cluster of CPU ranks: two hosts of two sockets; one socket of the second is slow.
    ranks = [{"host": h, "read_gbps": 200 if i < 3 else 100, "int8_gops": 9000,
              "mem_available": 128e9} for i, h in enumerate("aabb")]
    cluster = os.path.join(d, "ranks.json")
    json.dump({"ranks": ranks, "join_us": 5, "join_gbps": 10}, open(cluster, "w"))
    ask4 = f"--model qwen3-30b-a3b --weights q4 --this-cluster {cluster} --concurrency 1 --mtp 0"
    told = ask(f"{ask4} --top 100")
    o = {x["layout"]["tp"]: x for x in told["options"]
         if x["layout"]["pp"] * x["layout"]["dp"] * x["layout"]["ep"] == 1}
    check(sorted(o) == [1, 2, 3, 4], f"every number of ranks is told: {sorted(o)}")
    read = [o[n]["step_us"]["weights"] + o[n]["step_us"]["experts"] for n in (1, 2, 3, 4)]
    # (of four heads of keys one of three ranks has two)
    check(1.9 < read[0] / read[1] <= 2 and 2.6 < read[0] / read[2] <= 3,
          f"ranks read their share: {read}")
    check(1.9 < read[0] / read[3] <= 2, "four of which one is half as fast are as two")
    # what a token's joins put side by side, hidden values of experts prepared in 8 bits
    col = 2048 + 48 * (32 * 128 + 2 * 2048 + 8 * 768 / 2)
    for n in (1, 2, 4):
        # two joins tell of the step
        want = n > 1 and 196 * 5 + 4 * (col + 151936) * (1 - 1 / n) / 10e9 * 1e6
        check(abs(o[n]["step_us"]["communication"] - want) <= 0.001 * want,
              f"joins of {n}: {o[n]['step_us']['communication']:.1f} us, not {want:.1f}")
    left = [o[n]["memory_gib"]["usable"] for n in (1, 2, 3, 4)]
    check(all(abs(left[0] / x - 2) < 1e-6 for x in left[1:]),
          "ranks of a host share its memory")
    shapes = {tuple(x["layout"][k] for k in ("tp", "pp", "dp", "ep")) for x in told["options"]}
    check({(2, 2, 1, 1), (1, 4, 1, 1), (1, 1, 4, 4), (4, 1, 1, 4), (2, 2, 1, 2),
           (2, 1, 2, 4), (1, 2, 2, 2), (4, 1, 1, 2), (2, 1, 2, 2), (1, 2, 2, 1)} <= shapes
          and not {s for s in shapes if s[0] * s[2] % s[3]},
          f"every layout that the engine has, and no other: {sorted(shapes)}")
    goals = told["one_user"], told["many_users"]
    check(goals[0]["concurrency"] == 1 < goals[1]["concurrency"] and
          goals[1]["tps"] > goals[0]["tps"], f"the best for one user and for many: {goals}")
    x = ask(f"{ask4} --layout tp=4,weight=2:2:2:1")["options"]
    check(len(x) == 1 and x[0]["layout"]["weight"] == "2:2:2:1", f"shares that are asked for: {x}")
    # an engine of its own for prompts: pays where they hurt answers more than the way costs
    pd = f"{ask4} --layout tp=4 --pd apart --input 8000 --output 400 --rate 0.05"
    fast, slow = (ask(f"{pd} --pd-gbps {g}")["apart"] for g in (100, 0.01))
    check(fast["pays"] and fast["harm_ms"] > fast["cost_ms"] and
          fast["split"]["tpot_ms"] < fast["two"]["tpot_ms"], f"it pays on a fast link: {fast}")
    kv = 8000 * 48 * 2 * 4 * 128 * 2
    check(not slow["pays"] and slow["wire_ms"] > 100 * fast["wire_ms"] and
          abs(slow["kv_bytes"] / kv - 1) < 0.01, f"and not on a slow one: {slow}")
    few = ask(f"{ask4} --layout tp=4 --pd apart --input 8000 --output 2 --rate 0.05")["apart"]
    check(not few["pays"], f"nor for answers of two tokens: {few}")
    x = ask(f"{ask4} --layout dp=2,ep=2 --combine q8")["options"][0]
    y = ask(f"{ask4} --layout dp2ep2")["options"][0]
    check(x["layout"]["dispatch"] in ("swap", "gather")
          and x["step_us"]["communication"] < y["step_us"]["communication"],
          "experts' outputs as q8 are less to move")
    near = y["layout"]["micro"]
    far = dict(json.load(open(cluster)), join_us=200, join_gbps=1, host_join_us=5,
               host_join_gbps=10, hop_us=300, hop_gbps=1)
    json.dump(dict(far, join_gbps=0.1, host_join_gbps=0.1), open(cluster, "w"))
    m = [ask(ask4.replace("cy 1", f"cy {n}") + f" --layout {how}")["options"][0]["layout"]["micro"]
         for how, n in (("dp=2,ep=2", 256), ("dp=2,ep=2", 1), ("dp=2,tp=2,ep=4", 256))]
    check(near == 1 and m == [2, 1, 1],
          f"two halves where the network is slow, there are users, and no tp: {near} {m}")
    json.dump(far, open(cluster, "w"))
    f = {x["name"]: x["step_us"]["communication"]
         for x in ask(f"{ask4} --top 100")["options"]}
    check(f["q4 cpu tp4"] > 10 * f["q4 cpu tp2pp2"] and f["q4 cpu tp2pp2"] > f["q4 cpu tp2"],
          f"within a host ranks share matrices, between hosts layers: {f}")
    json.dump({"ranks": ranks, "join_us": 5, "join_gbps": 10}, open(cluster, "w"))
    check(ask(f"{ask4} --layout tp2")["options"][0]["layout"]["tp"] == 2, "a layout is asked for")
    fast = [dict(points[k], tps=points[k]["tps"] * 2) for k in (0, 4, 17)]
    json.dump(fast, open(bench, "w"))
    was, now = o[2]["tpot_ms"], ask(f"{ask4} --layout tp2 --bench {bench}")["options"][0]
    check(now["tpot_ms"] != was and now["confidence"] == "calibrated",
          "constants from a bench file of one rank")
    rc, out, _ = e2e.run([EXE, "plan", "--model", os.path.join(e2e.ROOT, "models", "demo",
                          "demo.gguf"), "--this-cluster", cluster, "--layout", "tp3", "--input",
                          "512", "--mtp", "1", "--emit", emit])
    made = json.load(open(emit))
    check(made["layout"] == "tp=3" and made["draft"] == "mtp" and made["draft-max"] == 1,
          f"what serve takes: {made}")
    check(b"start: mpirun -n 3 --host a:2,b:1 --mca btl_tcp_if_include NETWORK" in out,
          f"and how it is started: {out.decode().splitlines()[-1]}")

    tiny = e2e.tiny(os.path.dirname(EXE))
    demo = next((os.path.join(tiny, f) for f in sorted(os.listdir(tiny)) if f.endswith(".gguf")),
                None)
    check(demo is not None, "a tiny model to measure")
    for args, n_fit in (((), 3), (("--grid", "small"), 3)):
        rc, out, err = e2e.run([EXE, "plan", "--this-machine", "-m", demo, "--json", *args])
        m = json.loads(out.decode()) if rc == 0 else {"points": []}
        check(rc == 0 and sum(p["fitted"] for p in m["points"]) == n_fit
              and all(p["predicted"] > 0 for p in m["points"]),
              f"this machine, measured here {args}: {len(m['points'])} points "
              f"{err.strip()[:120] if rc else ''}")
        check(all(("tps" in p) or not args for p in m["points"]),
              "every point of a grid is measured")

print(f"{len(failed)} failed")
sys.exit(1 if failed else 0)
