#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same bits in every numeric form that users get: the program `bits` (bits.c says what it
compares) over wide models of every architecture (wide.py) in every weight type.

  check_bits.py [BUILD] [--all] [--cpu SET,...] [--only TEXT] [--jobs N]
                [--emulate "COMMAND"] [--update]

Rows. rows.txt is the release list: for each model four pairs of --acts and --kv, which over the
models hold every pair of acts, cache type, architecture and weight type, and for each pair the
hash of the reference's logits. The order of every sum depends on nothing but shape, so a hash is
the same on all CPUs; what differs is attention, which is computed on bf16 where the CPU multiplies
that (column bf16), on 16-bit integers in MLA where AVX2 is all there is (column i16), and in f32
elsewhere (column f32). Any change of bits is a change of this file, seen in review.

Without options (what CI runs): every model on every instruction set that this machine has, one of
its four pairs on each, another one on the next (f32, which is slow, on one set of four; of the
reference kernels the demo model alone). The best set and avx2 have every model, each in full on one
of the two; the others have every fourth model, quickly (tests/kern has every kernel of each); f32
is quick everywhere, and of it each sequence's last 8 tokens come in steps of one, not all.
--all: the 16 pairs of each model in full on each set. --emulate: `bits` is run by COMMAND (a qemu
and its -cpu; with BUILD another architecture's, SLUICE_BUILD names this machine's, which makes the
models) with one thread, briefly: the first rows of two sequences, whose hashes brief.txt has.
--update fills in the hashes (with --only: those): all four pairs on one set of each form."""
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]
import e2e  # noqa: E402
import wide  # noqa: E402

ROWS = {"hash": os.path.join(HERE, "rows.txt"), "brief": os.path.join(HERE, "brief.txt")}
ACTS = ("auto", "int8", "bf16", "f32")
KV = ("bf16", "f16", "q8", "f32")
FORMS = ("f32", "i16", "bf16")
DEMO_AT = 83
# Each instruction set's form of attention; the sets of other CPUs are asked for by name and fall
# back to what this one has, so that `isa` in the answer is what counts.
FORM_OF = {"ref": "f32", "avx2": "i16", "avxvnni": "i16", "avx512": "f32", "vnni256": "f32",
           "avx512vnni": "f32", "avx512bf16": "bf16", "neon": "f32", "i8mm": "f32"}
SETS = list(FORM_OF)


def option(name, default=None):
    if name in sys.argv:
        i = sys.argv.index(name)
        value = sys.argv[i + 1]
        del sys.argv[i:i + 2]
        return value
    return default


def flag(name):
    found = name in sys.argv
    if found:
        sys.argv.remove(name)
    return found


def read_rows(kind):
    """{(model, acts, kv): {form: hash}}, in the order of the file."""
    rows = {}
    if not os.path.exists(ROWS[kind]):
        return rows
    with open(ROWS[kind]) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                model, acts, kv, *hashes = line.split()
                rows[model, acts, kv] = {f: h for f, h in zip(FORMS, hashes) if h.strip("-")}
    return rows


def write_rows(kind, rows):
    with open(ROWS[kind], "w") as f:
        of = "logits" if kind == "hash" else "first logits (bits --brief)"
        f.write("# SPDX-License-Identifier: Apache-2.0\n"
                f"# The release list of check_bits.py, and the hash of each row's {of} by the\n"
                "# form of attention. Made by check_bits.py --update.\n"
                f"# {'model':24} {'acts':5} {'kv':5} {'f32':16} {'i16':16} bf16\n")
        for (model, acts, kv), h in rows.items():
            cells = " ".join(h.get(k, "-" * 16) for k in FORMS)
            f.write(f"{model:26} {acts:5} {kv:5} {cells}\n")


def names():
    return wide.names() + ["demo"]


def release_list():
    """Four pairs a model: every acts once, every cache type once. Which depends on a model's place:
    that of the demo model, the last, stays where it was before others came."""
    placed = [*enumerate(wide.names()), (DEMO_AT, "demo")]
    return [(m, ACTS[a], KV[(a + i) % 4]) for i, m in placed for a in range(4)]


class Check:
    def __init__(self, rows, update):
        self.rows, self.update = rows, update
        self.build = e2e.build_dir()
        self.tools = os.environ.get("SLUICE_BUILD") or self.build
        self.out = os.path.join(self.tools, "tests", "wide")
        self.tally = e2e.Tally("bits")
        self.lock = threading.Lock()
        self.making = {m: threading.Lock() for m in wide.CONFIGS}
        self.seen, self.listed, self.unknown = {}, set(release_list()), set()

    def path(self, model):
        if model == "demo":
            return os.path.join(e2e.ROOT, "models", "demo", "demo.gguf")
        with self.making[model.split(".")[0]]:
            return wide.make(self.out, e2e.sluice(self.tools), model, e2e.tiny(self.tools))

    def one(self, cpu, row, args, emulate):
        model, acts, kv = row
        what = f"{model} --acts {acts} --kv {kv} SL_CPU={cpu}"
        env = dict(os.environ, SL_CPU=cpu)
        p = subprocess.run(emulate + [os.path.join(self.build, "bits"), self.path(model), acts, kv]
                           + args, capture_output=True, text=True, env=env)
        m = re.search(r"isa (\S+) rows \d+ hash (\w{16}|-) brief (\w{16})", p.stdout)
        with self.lock:
            if p.returncode or not m:
                self.tally.check(what, f"exit {p.returncode}: {p.stderr.strip()[:600]}")
                return
            isa, *got = m.groups()
            self.tally.check(what, "; ".join(filter(None, (
                self.differs(row, isa, kind, h) for kind, h in zip(ROWS, got)))) or None)

    def differs(self, row, isa, kind, got):
        """What is wrong with a hash of a row's logits, as rows.txt or an earlier set has it."""
        if got == "-":
            return None
        form, file = FORM_OF[isa], os.path.basename(ROWS[kind])
        known = {} if self.update else self.rows[kind].get(row, {})
        if not self.update and row in self.listed and form not in known:
            if not known:
                return f"{isa}: {file} has no hash of it: --update"
            self.unknown.add((row, form))  # made on a CPU without that form: told at the end
        want = self.seen.setdefault((kind, row, form), known.get(form, got))
        return f"{isa}: logits' hash {got}, {file} has {want}" if want != got else None


def machine_sets(check, emulate):
    """The sets of this CPU: asked for by name, those above what it has answer with its best."""
    found = []
    for cpu in SETS:
        p = subprocess.run(emulate + [os.path.join(check.build, "bits"), "--isa"],
                           capture_output=True, text=True, env=dict(os.environ, SL_CPU=cpu))
        if p.returncode == 0 and p.stdout.strip() == cpu:
            found.append(cpu)
    if not found:
        sys.exit("bits: no instruction set answers: is it built?")
    return found


def jobs_of(sets, everything, update):
    """[(cpu, row, in full?)]"""
    listed, out = release_list(), []
    both = "avx2" in sets[:-1]
    if update:
        one = {FORM_OF[c]: c for c in sets}
        return [(c, row, False) for c in one.values() for row in listed]
    if everything:
        return [(c, (m, a, k), True) for c in sets for m in names() for a in ACTS for k in KV]
    for s, cpu in enumerate(sets):
        for i in range(0, len(listed), 4):
            model = i // 4
            a = (model + s) % 4
            if ACTS[a] == "f32" and (model // 4 + s) % 4:
                a = model % 3  # f32 decodes weights at every step: a tenth of the speed of others
            every = cpu in (sets[-1], "avx2")
            full = ACTS[a] != "f32" and (not both or (cpu == sets[-1]) != model % 2)
            taken = cpu != "ref" and (every or (a + model // 4 + s) % 4 == 0)
            if taken or listed[i][0] == "demo":
                out.append((cpu, listed[i + a], every and full))
    return out


def tell_missing(unknown):
    """What the sets of a form gave is compared with each other alone where no hash is known."""
    for form in FORMS:
        n = sum(f == form for _, f in unknown)
        if n:
            print(f"bits: column {form} is empty in {n} of these rows: fill it in on a CPU that "
                  "has such attention (docs/bits.md)")


def main():
    if flag("--help") or flag("-h"):
        print(__doc__)
        return
    rows = {kind: read_rows(kind) for kind in ROWS}
    everything, update = flag("--all"), flag("--update")
    cpu, only = option("--cpu"), option("--only", "")
    emulate = option("--emulate", "").split()
    n_job = int(option("--jobs", str((os.cpu_count() or 1) + 1)))  # they begin on one core
    check = Check(rows, update)
    os.makedirs(check.out, exist_ok=True)
    sets = cpu.split(",") if cpu else machine_sets(check, emulate)
    jobs = jobs_of(sets, everything, update)
    jobs = [j for j in jobs if only in f"{j[1][0]} {j[1][1]} {j[1][2]}"]
    if not jobs:
        sys.exit("bits: no row has that in its name")
    running = []
    with ThreadPoolExecutor(n_job) as pool:
        for one_cpu, row, full in jobs:
            args = ["--threads", "2"] + ([] if full else ["--quick"])
            if one_cpu == "ref" and not everything and not update:
                args += ["--brief"]
            if row[1] == "f32" and not everything:
                args += ["--ones", "8"]
            if emulate:
                args = ["--threads", "1", "--brief"]  # emulated threads that wait cost the most
            running.append(pool.submit(check.one, one_cpu, row, args, emulate))
    for job in running:
        job.result()
    if update:
        for (kind, row, form), got in check.seen.items():
            check.rows[kind].setdefault(row, {})[form] = got
        for kind in ROWS:
            write_rows(kind, {row: check.rows[kind].get(row, {}) for row in release_list()})
        check.unknown = {(j[1], f) for j in jobs for f in FORMS
                         if f not in check.rows["hash"].get(j[1], {})}
    tell_missing(check.unknown)
    print(f"bits: {len(jobs)} rows on {', '.join(sets)}")
    check.tally.exit()


if __name__ == "__main__":
    main()
