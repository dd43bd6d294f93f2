# SPDX-License-Identifier: Apache-2.0
# the experts of tokens b and c of a text "a b c", by what is counted of "a", "a b" and "a b c"
cat > look.py <<'P'
import json, subprocess, sys
exe, model = sys.argv[1:]
def out(*args):
    return subprocess.run([exe, *args], check=True, capture_output=True, text=True).stdout
open("t.txt", "w").write("one two")
ids = json.loads(subprocess.run([exe, "tokenize", "-m", model], stdin=open("t.txt"), check=True,
                                capture_output=True, text=True).stdout)
counts = []
for n in range(1, len(ids) + 1):
    out("eval", "-m", model, "--ids", ",".join(map(str, ids[:n])), "--dump-logits", "l.bin",
        "--expert-stats", "s.json")
    counts.append([l["counts"] for l in json.load(open("s.json"))["layers"]])
chosen = [[{i for i in range(len(a)) if b[i] > a[i]} for a, b in zip(x, y)]
          for x, y in zip(counts, counts[1:])]  # of tokens 1 .., by layer
want = []
for q in range(1, 6):
    rows = [len(set().union(*(chosen[t - k][l] for k in range(q))))
            for t in range(q - 1, len(chosen)) for l in range(len(chosen[0]))]
    want.append(round(sum(rows) / len(rows), 5) if rows else None)
r = json.loads(out("eval", "-m", model, "-f", "t.txt", "--ctx", str(max(len(ids), 2)), "--experts",
                   "--json", "--expert-stats", "s.json"))
got = [x if x is None else round(x, 5) for x in r["distinct_experts"]]
in_row = json.load(open("s.json"))["in_row"]
even = [r["experts"] * (1 - (1 - r["experts_used"] / r["experts"]) ** q) for q in range(1, 6)]
print(got == want or (got, want), len(ids) > 3, got[0] == r["experts_used"] or got,
      all(abs(a - b) < 1e-3 for a, b in zip(even, r["distinct_experts_even"])),
      len(in_row) >= 3 and all(abs(a - b) < 1e-4 for a, b in zip(in_row, got)))
P
python3 look.py $SLUICE $TINY/qwen3_moe.gguf
$SLUICE eval -m $TINY/qwen3_moe.gguf -f t.txt --experts |
    grep -c "^experts read  .* by 1 to 5 tokens in a row; even ones: "
