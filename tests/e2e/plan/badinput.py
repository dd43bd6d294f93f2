# SPDX-License-Identifier: Apache-2.0
"""Wrong names, contradictions, bad tables: one clear line and exit 2 or 1, never a crash, never
NaN."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import e2e  # noqa: E402

EXE = e2e.sluice()
failed = []
HEAD = ("source_file,system,model,weights_bits,act_bits,hardware,cards,layout,concurrency,"
        "input_len,output_len,metric,value,unit,note\n")
GOOD = "s,e,deepseek-r1,4,16,Ascend 910B1,8,TP8,1,128,512,TPOT,22.8,ms,\n"


def expect(args, rc_want, *words):
    rc, out, err = e2e.run([EXE, "plan", *args])
    lines = [x for x in err.splitlines() if x]
    ok = rc == rc_want and len(lines) == 1 and lines[0].startswith("sluice: ") and all(
        w in err for w in words)
    ok = ok and b"nan" not in out.lower().replace(b"nanosecond", b"")
    print(("ok    " if ok else "FAIL  ") + " ".join(args)[:90] + " -> " +
          (lines[0][:120] if lines else "nothing"))
    if not ok:
        failed.append((args, rc, err))


base = ["--model", "deepseek-r1", "--hardware", "ascend-910b1", "--cards", "8"]
expect(["--model", "deepseek-r9", "--hardware", "ascend-910b1"], 2, "deepseek-r9", "DeepSeek-R1")
expect(["--model", "deepseek-r1", "--hardware", "ascend-910x7"], 2, "nearest", "Ascend 910")
expect(["--model", "deepseek-r1", "--hardware", "ascend-910b4", "--host", "kunpong"], 2, "kunpong",
       "Kunpeng")
expect(["--hardware", "h20"], 2, "--model")
expect(["--model", "deepseek-r1"], 2, "--hardware")
expect(base + ["--layout", "zz8"], 2, "layout", "tp8")
expect(base + ["--layout", "tp0"], 2, "layout")
expect(base + ["--layout", "tp16"], 2, "contradiction")
expect(base + ["--weights", "int3"], 2, "int3", "awq")
expect(base + ["--kv", "fp3"], 2, "--kv")
expect(base + ["--pd", "4P:4D"], 2, "nodes")
expect(base + ["--pd", "banana"], 2, "--pd")
expect(base + ["--nodes", "3"], 2, "contradiction")
expect(base + ["--cards", "0"], 2, "--cards")
expect(base + ["--cards", "-8"], 2, "--cards")
expect(base + ["--input", "0"], 2, "--input")
expect(base + ["--input", "nan"], 2, "--input")
expect(base + ["--output", "1e99"], 2, "--output")
expect(base + ["--concurrency", "0"], 2, "--concurrency")
expect(base + ["--input", "1000000"], 2, "context")
expect(base + ["--experts-on", "moon"], 2, "--experts-on")
expect(base + ["--hot-experts", "2"], 2, "--hot-experts")
expect(base + ["--sweep", "concurrency=1,x"], 2, "--sweep")
expect(["--leave-out", "engine"], 2, "--leave-out engine", "model|device")
expect(["--leave-out", "model", "--json"], 2, "--leave-out")
expect(base + ["--max-batch", "-1"], 2, "--max-batch")
expect(base + ["--this-cluster", "x.json"], 2, "--hardware", "--this-cluster")
expect(base + ["--sweep", "colour=1"], 2, "--sweep")
expect(base + ["--check", "published", "--sweep", "input=1"], 2, "contradiction")
expect(["--model", "qwen3-32b", "--hardware", "h20", "--layout", "dp8ep8", "--cards", "8"], 2,
       "no experts")
expect(["--model", "qwen3-32b", "--hardware", "h20", "--experts-on", "cpu"], 2, "no experts")
expect(["--model", "qwen3-32b", "--hardware", "h20", "--mtp", "2"], 2, "MTP")
expect(base + ["--contsants", "x"], 2, "constants")
expect(["--check", "/nonexistent/rows.csv"], 1, "rows.csv")

with tempfile.TemporaryDirectory() as d:
    def file(name, text):
        p = os.path.join(d, name)
        with open(p, "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return p

    def rows(name, text):
        return file(name, HEAD + text)

    expect(["--check", rows("cards.csv", GOOD + GOOD.replace(",8,TP8", ",many,TP8"))], 1, "line 3",
           "column 7", "many")
    expect(["--check", rows("value.csv", GOOD.replace("22.8", "fast"))], 1, "line 2", "value",
           "fast")
    expect(["--check", rows("zero.csv", GOOD.replace("22.8", "0"))], 1, "line 2", "above zero")
    expect(["--check", rows("neg.csv", GOOD.replace("22.8", "-3"))], 1, "line 2")
    expect(["--check", rows("huge.csv", GOOD.replace(",128,", ",1e30,"))], 1, "line 2", "input_len")
    expect(["--check", rows("wide.csv", GOOD.rstrip() + ",x,y\n")], 1, "line 2", "cells")
    expect(["--check", rows("quote.csv", '"open,' + GOOD)], 1, "quote")
    expect(["--check", rows("nul.csv", GOOD + "a\0b,\n")], 1, "NUL")
    expect(["--check", file("head.csv", "a,b\n1,2\n")], 1, "column", "model")
    expect(["--check", file("empty.csv", "")], 1, "empty")
    expect(["--check", rows("long.csv", "x" * 9000 + "," + GOOD)], 1, "longer")
    for mode in (["--list"], ["--acceptance-table"],
                 ["--model", "deepseek-r1", "--claim-gb", "289"]):
        expect([*mode, "--json"], 2, "--json: not with")
    expect(["--calibrate",
            rows("two.csv", GOOD * 2), "--engine", "e", "--hardware", "910b1"], 2, "3 or more")
    expect(base + ["--constants", file("c.json", "{\"sets\":[{\"vendor\":\"x\"}]}")], 1, "c.json",
           "vendor")
    expect(base + ["--constants", file("d.json", "[1,2")], 1, "d.json")
    expect(base + ["--constants", file("e.json", "{\"sigma_prior\":-1}")], 1, "sigma_prior")
    expect(base + ["--experts-on", "card", "--hot-experts", "0.5"], 2, "contradiction",
           "--hot-experts")
    zero = ('{"sets":[{"engine":"e","device":"d","vendor":"ascend","mode":"tp",'
            '"constants":{"eta_w":0,"mfu":1}}]}')
    expect(base + ["--constants", file("z.json", zero)], 1, "z.json", "eta_w", "above zero")
    expect(base + ["--models-file",
                   file("m.csv", "name,attn,layers,hidden\nx,gqa,nine,64\n")], 1, "m.csv line 2",
           "layers")
    expect(
        base +
        ["--models-file", file("m2.csv", "name,attn,layers,hidden\nx,gqa,0,64\n")], 1, "layers")
    expect(base +
           ["--hardware-file", file("h.csv", "name,kind,mem_GiB\nx,gpu,-4\n")], 1, "h.csv line 2",
           "mem_GiB")
    expect(["--model", file("config.json", "{\"hidden_size\": 64}"), "--hardware", "h20"], 1,
           "layers")
    expect(
        ["--model", file("bad.json", "{\"hidden_size\": \"many\"}"), "--hardware", "h20"], 1,
        "hidden_size")
    expect(["--model", file("x.gguf", b"GGUF\0\0\0\0"), "--hardware", "h20"], 1, "x.gguf")
    drafts = ["--drafts", file("drafts.json",
                               '[{"draft":{"drafted":9,"accepted_by_position":[0.9]}}]')]
    expect([*base, *drafts, "--acceptance", "0.8"], 2, "contradiction", "--acceptance")
    expect([*base, *drafts, "--mtp", "0"], 2, "contradiction", "--mtp 0")
    expect(["--model", "qwen3-32b", "--hardware", "h20", *drafts], 2, "no MTP layer")
    expect(["--list", *drafts], 2, "--drafts")
    for name, text, *words in (("none.json", "[]", "no rows"), ("kind.json", "{}", "no rows"),
                               ("over.json", '[{"draft":{"accepted_by_position":[1.5]}}]',
                                "accepted_by_position[0]")):
        expect([*base, "--drafts", file(name, text)], 1, name, *words)
    bench = file("b.json", "[{\"test\":\"tg64\",\"tps\":0},{},{}]")
    expect(["--this-machine", "--model", "qwen3-30b-a3b", "--bench", bench], 1, "b.json")
    expect(["--this-machine", "--model", "qwen3-30b-a3b"], 2, "--bench")
    expect(["--this-machine", "--model", "no/such.gguf"], 1, "no/such.gguf")
    expect(["--this-machine", "--model", "qwen3-30b-a3b", "--grid", "huge"], 2, "--grid")
    rank = '{"host":"a","read_gbps":20,"int8_gops":500,"mem_available":6e10}'
    for name, text, *words in (
            ("none.json", '{"read_gbps":20}', "list of ranks"),
            ("empty.json", '{"ranks":[]}', "list of ranks"),
            ("number.json", '{"ranks":[7]}', "rank 0"),
            ("host.json", '{"ranks":[%s]}' % rank.replace('"a"', '""'), "rank 0", "host"),
            ("gops.json", '{"ranks":[%s,%s],"join_us":9,"join_gbps":2}'
             % (rank, rank.replace("500", "0")), "rank 1", "int8_gops"),
            ("mem.json", '{"ranks":[%s]}' % rank.replace("6e10", '"much"'), "mem_available"),
            ("join.json", '{"ranks":[%s,%s],"join_us":9}' % (rank, rank), "join_gbps")):
        expect(["--model", "qwen3-30b-a3b", "--this-cluster", file(name, text)], 1, name, *words)
    two = file("two.json", '{"ranks":[%s,%s],"join_us":9,"join_gbps":2}' % (rank, rank))
    for layout in ("tp3", "pp3", "tp2dp2"):
        expect(["--model", "qwen3-30b-a3b", "--this-cluster", two, "--layout", layout], 2, layout,
               "1 to 2")
    for layout in ("dp2", "tp2ep1pp2", "tp2x2"):
        expect(["--model", "qwen3-32b", "--this-cluster", two, "--layout", layout], 2, layout)
    for args, *words in ((["--layout", "tp2,weight=1:2:3"], "3 weights, a stage has 2 ranks"),
                         (["--layout", "tp2,weight=0:2"], "from 1 to 1000"),
                         (["--pd", "apart"], "--rate"), (["--pd", "1P:1D"], "apart"),
                         (["--pd-gbps", "1"], "--pd")):
        expect(["--model", "qwen3-32b", "--this-cluster", two, *args], 2, *words)
    expect(["--model", "qwen3-32b", "--combine", "q4", "--this-cluster", two], 2, "--combine")
    expect(["--model", "qwen3-32b", "--this-box", "--this-cluster", two], 2, "--this-box")
    expect(["--model", "qwen3-32b", "--this-box", "--ranks", "64", "-t", "2"], 2, "--ranks 64")
    for args, *words in ((["--device", "cpu"], "it is the CPU"), (["--device", "nocard"], "nocard"),
                         (["--device", "sim", "--hardware", "h20"], "--hardware"),
                         (["--device", "sim:speed=1"], "speed"),
                         (["--device", "sim", "--defer", "9"], "--defer 9"),
                         (["--device", "sim", "--hot", "400"], "--hot 400")):
        expect(["--model", "qwen3-30b-a3b", *args], 1 if "nocard" in args[1] else 2, *words)
    expect(base + ["--hardware-file", file("h.json", "{}")], 1, "h.json", "list")
    expect(base +
           ["--models-file", file("m.json", '[{"name":"x","layers":"nine"}]')], 1, "m.json line 2",
           "layers")

for f in failed:
    print(f)
print(f"{len(failed)} failed")
sys.exit(1 if failed else 0)
