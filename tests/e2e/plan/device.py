# SPDX-License-Identifier: Apache-2.0
"""plan --device against the stand-in with virtual time: a step of each placement, and prompts whose
experts come to the device, predicted and as the device counts them (device_ms_per_step of bench).
Mean error at most 15 %, none over 35 %. What streaming takes of memory is what inspect says."""
import functools
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

EXE = e2e.sluice()
MEAN, WORST = 15.0, 35.0
BASE = dict(vocab_size=4096, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=2048,
            tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, torch_dtype="bfloat16",
            attention_bias=False, hidden_size=1024, num_hidden_layers=4, num_attention_heads=16)
MOE = dict(BASE, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe",
           intermediate_size=1024, num_key_value_heads=4, head_dim=64, rope_theta=1e6,
           decoder_sparse_step=1, moe_intermediate_size=256, num_experts_per_tok=8,
           num_experts=32, norm_topk_prob=True, mlp_only_layers=[])
V3 = dict(BASE, architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3",
          intermediate_size=2048, num_key_value_heads=16, q_lora_rank=256, kv_lora_rank=128,
          qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, n_routed_experts=32,
          num_experts_per_tok=4, moe_intermediate_size=256, n_shared_experts=1, n_group=4,
          topk_group=2, topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True,
          routed_scaling_factor=2.5, first_k_dense_replace=1, moe_layer_freq=1,
          num_nextn_predict_layers=0, rope_theta=10000.0)
SLOW_HOST = "sim:bw=200,bus=12,host-bw=5,host-ops=100G"
FAST_HOST = "sim:bw=50,ops=10T,bus=6,lat=4us,hand=10us,host-bw=40,host-ops=1T"
LATE_CARD = "sim:bw=800,bus=24,lat=20us,hand=30us,host-bw=10"
PLACES = ([], ["--cpu-moe"], ["--cpu-moe", "--defer", "2"], ["--cpu-moe", "--hot-experts", "8"])
HOT = 8
DEPTH, N_NEW = 64, 4


@functools.lru_cache(None)
def placements(model, device, defer, batch):
    code, out, err = e2e.run([EXE, "plan", "--device", device, "-m", model, "--weights", "q4",
                              "--input", str(DEPTH), "--output", str(N_NEW), "--concurrency",
                              str(batch), "--json", "--hot", str(HOT), "--defer", str(defer)])
    if code:
        sys.exit(f"plan: exit {code}: {err[-300:]}")
    return json.loads(out)["placements"]


def ask(model, device, args, batch):
    """What plan says of the placement that bench's arguments mean."""
    all_of_it = placements(model, device, int(args[-1]) if "--defer" in args else 0, batch)
    want = ("all on the device" if not args else "hot ones on both" if "--hot-experts" in args
            else "experts on the CPU")
    return next(p for p in all_of_it if p["name"] == want)


def measure(model, device, args, batches):
    code, out, err = e2e.run([EXE, "bench", "--mock", "--mock-type", "q4_0", "-m", model,
                              "--device", device, "-p", "0", "-n", str(N_NEW), "-b",
                              ",".join(map(str, batches)), "-d", str(DEPTH), "-r", "1", "--json",
                              "-c", "512", "-t", "2", *args])
    if code:
        sys.exit(f"bench {device} {args}: exit {code}: {err[-300:]}")
    return {r["batch"]: r["device_ms_per_step"] for r in json.loads(out)}


def plan_stream(model, device, n, *more):
    """Rows of a prompt of n tokens in one step, streamed."""
    code, out, err = e2e.run([EXE, "plan", "--device", device, "-m", model, "--weights", "q4",
                              "--input", str(n), "--output", "1", "--concurrency", "1", "--json",
                              "--chunk", str(n), "--hot", "0", *more])
    if code:
        sys.exit(f"plan: exit {code}: {err[-300:]}")
    return next(p for p in json.loads(out)["placements"] if p["name"] == "experts on the CPU")


def measure_prompt(model, device, n, *more):
    code, out, err = e2e.run([EXE, "bench", "--mock", "--mock-type", "q4_0", "-m", model,
                              "--device", device, "-p", str(n), "-n", "0", "-r", "1", "--json",
                              "-c", "512", "-t", "2", "--chunk", str(n), "--cpu-moe", *more])
    if code:
        sys.exit(f"bench {device} -p {n}: exit {code}: {err[-300:]}")
    return next(r for r in json.loads(out) if r["test"].startswith("pp"))


def check_streamed(model, name, device, errors):
    """Prompts long and short, streamed and not; auto is the faster of both."""
    for n in (32, 256):
        by = {}
        for way in ([], ["--stream-from", "1"]):
            ms = measure_prompt(model, device, n, *way)["device_ms_per_step"]
            p = plan_stream(os.path.join(model, "config.json"), device, n, *way)
            e = 100 * (p["prompt_ms"] / ms - 1)
            errors.append(abs(e))
            by[bool(way)] = p["prompt_ms"]
            if (p["streamed_from"] > 0) != bool(way):
                sys.exit(f"{way}: streamed from {p['streamed_from']}")
            print(f"{name} {device[4:36]:32} {'prompt, ' + (' '.join(way) or 'not streamed'):28} "
                  f"{n} {ms:8.3f} {p['prompt_ms']:8.3f} {e:+6.1f} %")
        auto = plan_stream(os.path.join(model, "config.json"), device, n, "--stream-from", "auto")
        if abs(auto["prompt_ms"] - min(by.values())) > 1e-6:
            sys.exit(f"auto: {auto['prompt_ms']} ms, not the least of {by}")


def check_several(model, name):
    """Two devices: what plan lists is started as it says, and answers as the CPU does."""
    one = "sim:bw=800,bus=24,host-bw=20"
    device = one + "," + one
    code, out, err = e2e.run([EXE, "plan", "--device", device, "-m",
                              os.path.join(model, "config.json"), "--weights", "q4", "--input",
                              str(DEPTH), "--output", "8", "--json", "--hot", "4"])
    if code:
        sys.exit(f"plan {device}: exit {code}: {err[-300:]}")
    rows = json.loads(out)["placements"]
    if [r["stages"] for r in rows] != [False, True] * 3:
        sys.exit(f"placements: {[r['name'] for r in rows]}")
    ask = [EXE, "run", "--mock", "--mock-type", "q4_0", "-m", model, "--ids", "5,17,40,90", "-n",
           "8", "--temp", "0", "--ignore-eos", "--json", "-q", "-c", "128", "-t", "2"]
    want = None
    for args in ["--device cpu"] + [r["args"] for r in rows]:
        code, out, err = e2e.run(ask + args.split())
        if code:
            sys.exit(f"run {args}: exit {code}: {err[-300:]}")
        got = json.loads(out)["run_hash"]
        want = want or got
        if got != want:
            sys.exit(f"run {args}: other answers than the CPU's")
    print(f"{name}: {len(rows)} placements on two devices start and answer as the CPU")


def main():
    errors = []
    rows = [(MOE, "gqa", SLOW_HOST), (V3, "mla", LATE_CARD)]
    if "--all" in sys.argv:
        rows += [(MOE, "gqa", FAST_HOST), (V3, "mla", SLOW_HOST), (MOE, "gqa", LATE_CARD),
                 (V3, "mla", FAST_HOST)]
    with e2e.scratch() as work:
        for config, name, device in rows:
            d = os.path.join(work, name)
            os.makedirs(d, exist_ok=True)
            with open(os.path.join(d, "config.json"), "w") as f:
                json.dump(config, f)
            for args in PLACES:
                for batch, ms in measure(d, device, args, (1, 4)).items():
                    p = ask(os.path.join(d, "config.json"), device, args, batch)
                    e = 100 * (p["ms_per_step"] / ms - 1)
                    errors.append(abs(e))
                    print(f"{name} {device[4:36]:32} {' '.join(args) or 'all there':28} {batch} "
                          f"{ms:8.3f} {p['ms_per_step']:8.3f} {e:+6.1f} %")
            check_streamed(d, name, device, errors)
            check_several(d, name)
    mean = sum(errors) / len(errors)
    print(f"{len(errors)} steps: mean error {mean:.1f} %, worst {max(errors):.1f} %")
    sys.exit(0 if mean <= MEAN and max(errors) <= WORST else 1)


main()
