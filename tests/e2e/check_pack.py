#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packed files, from outside: found, not found any more when the source changes, cut, written by a
first start, killed while being
written, without room or rights.   check_pack.py BUILD_DIR"""
import glob, os, resource, shutil, signal, subprocess, sys, tempfile, time

BUILD = os.path.abspath(sys.argv[1])
SLUICE = os.path.join(BUILD, "sluice")
TINY = os.path.join(BUILD, "tests", "tiny")
DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "..", "..", "models", "demo", "demo.gguf")
n_good = n_bad = 0


def check(ok, what, detail=""):
    global n_good, n_bad
    n_good, n_bad = n_good + bool(ok), n_bad + (not ok)
    if not ok:
        print(f"BAD: {what}: {detail}")


def sluice(*args, env=None, limit=None):
    def before():
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    r = subprocess.run([SLUICE, *args], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, timeout=300, preexec_fn=before,
                       env={**os.environ, **(env or {})})
    return r.returncode, r.stdout, r.stderr


def run(model, *args, **kw):
    # -q and -v: all that it says, but the line for which it measures the machine
    return sluice("run", "-m", model, "--ids", "1,2,3,4", "-n", "6", "-c", "64", "-q", "-v", *args,
                  **kw)


def hash_of(r):
    return [w for w in r[1].split('"') if len(w) == 16][-1:] if r[0] == 0 else r


def found(tmp, name):
    src = os.path.join(tmp, name)
    (shutil.copytree if os.path.isdir(os.path.join(TINY, name))
     else shutil.copy2)(os.path.join(TINY, name), src)
    plain = run(src, "--json")
    packed = src + ".packed"
    check(sluice("pack", src)[0] == 0 and os.path.exists(packed), f"{name}: pack")
    r = run(src, "--json")
    check(f"mapped from {packed}" in r[2] and hash_of(r) == hash_of(plain),
          f"{name}: found beside", r)
    r = run(src, "--pack-cache", "ignore")
    check(r[0] == 0 and "mapped" not in r[2], f"{name}: ignored when told so", r)
    r = run(packed, "--json")
    check("mapped from" in r[2] and hash_of(r) == hash_of(plain), f"{name}: directly", r)
    check("not used by" not in r[2], f"{name}: codes and scales are no strangers", r)
    where = os.path.join(tmp, "alone.packed")
    shutil.copy2(packed, where)
    check(hash_of(run(where, "--json")) == hash_of(plain), f"{name}: moved")
    check(sluice("inspect", packed)[0] == 0, f"{name}: inspect")
    data = open(packed, "rb").read()
    for n in (0, 7, 95, 4096, len(data) // 2, len(data) - 1):
        with open(packed, "wb") as f:
            f.write(data[:n])
        r = run(src, "--json")
        check(hash_of(r) == hash_of(plain) and r[2].count("packed file not used") == 1,
              f"{name}: cut at {n}, found", r)
        r = run(packed)
        check(r[0] == 1 and r[2].count("\n") == 1 and packed in r[2],
              f"{name}: cut at {n}, directly", r)
    with open(packed, "wb") as f:
        f.write(data)
    file = glob.glob(os.path.join(src, "*.safetensors"))[0] if os.path.isdir(src) else src
    st = os.stat(file)
    os.utime(file, ns=(st.st_atime_ns, st.st_mtime_ns + 1))
    r = run(src, "--json")
    check("time of" in r[2] and hash_of(r) == hash_of(plain), f"{name}: newer source", r)
    with open(file, "r+b") as f:
        f.seek(st.st_size - 1)
        last = f.read(1)
        f.seek(st.st_size - 1)
        f.write(bytes([last[0] ^ 1]))
    os.utime(file, ns=(st.st_atime_ns, st.st_mtime_ns))
    check("contents of" in run(src)[2], f"{name}: other bytes, same time and size")
    with open(file, "ab") as f:
        f.write(b"x" * 64)
    os.utime(file, ns=(st.st_atime_ns, st.st_mtime_ns))
    if file == src:
        check("size of" in run(src)[2], f"{name}: longer source")


def logits(model, *how):
    """The bytes of every row, None where there are none."""
    with tempfile.TemporaryDirectory() as d:
        to = os.path.join(d, "l")
        r = sluice("eval", "-m", model, "--ids", "1,2,3,4", "--dump-logits", to, "-q", *how)
        if r[0]:
            return None
        with open(to, "rb") as f:
            return f.read()


def quantised(tmp, name):
    """Codes with scales beside them, and a bias among the scales."""
    import quants
    src = os.path.join(tmp, name)
    os.mkdir(src)
    for file, data in quants.build(name).items():
        with open(os.path.join(src, file), "wb") as f:
            f.write(data)
    plain, exact = run(src, "--json"), run(src, "--json", "--acts", "f32")
    r = sluice("pack", src)
    check(r[0] == 0, f"{name}: pack", r)
    rows = [logits(m, *how) for m, how in ((src, ("--pack-cache", "ignore")), (src, ()),
                                           (src + ".packed", ()))]
    check(rows[0] and rows[1:] == rows[:1] * 2, f"{name}: the same logits")
    for model in (src, src + ".packed"):
        r = run(model, "--json")
        check("mapped from" in r[2] and hash_of(r) == hash_of(plain), f"{name}: {model}", r)
        check("not used by" not in r[2], f"{name}: codes and scales are no strangers", r)
    check(hash_of(run(src, "--json", "--acts", "f32")) == hash_of(exact), f"{name}: reference mode")


def described(tmp, name, edit):
    """The quantiser's own file says what the numbers are: where it changes, the packed ones are
    others'."""
    import quants
    src = os.path.join(tmp, name + ".own")
    os.mkdir(src)
    for file, data in quants.build(name).items():
        with open(os.path.join(src, file), "wb") as f:
            f.write(data)
    own = [f for f in os.listdir(src) if f.endswith(".json") and f != "config.json"]
    check(sluice("pack", src)[0] == 0 and len(own) == 1, f"{name}: pack", own)
    path = os.path.join(src, own[0])
    text = open(path).read()
    check(edit(text) != text, f"{name}: edit")
    with open(path, "w") as f:
        f.write(edit(text))
    r, plain = run(src, "--json"), run(src, "--json", "--pack-cache", "ignore")
    check(own[0] in r[2] and "not used" in r[2] and hash_of(r) == hash_of(plain),
          f"{name}: another description", r)


def first_start(tmp):
    src = os.path.join(tmp, "first.gguf")
    shutil.copy2(os.path.join(TINY, "qwen3_moe.gguf"), src)
    env = {"XDG_CACHE_HOME": os.path.join(tmp, "cache")}
    plain = hash_of(run(src, "--json", env=env))
    check(not os.path.exists(env["XDG_CACHE_HOME"]), "off by default")
    r = run(src, "--json", "--pack-cache", "cache", env=env)
    files = glob.glob(env["XDG_CACHE_HOME"] + "/sluice/pack/*")
    check(len(files) == 1 and files[0].endswith(".packed")
          and hash_of(r) == plain and "mapped from" in r[2], "kept in the cache", r)
    t = os.stat(files[0]).st_mtime_ns
    r = run(src, "--json", env=env)
    check("mapped from " + files[0] in r[2] and os.stat(files[0]).st_mtime_ns == t,
          "found in the cache", r)
    r = run(src, "--json",
            env={**env, "SLUICE_PACK_CACHE": "beside", "XDG_CACHE_HOME": tmp + "/none"})
    check(os.path.exists(src + ".packed") and hash_of(r) == plain,
          "kept beside, by the environment", r)
    os.remove(src + ".packed")
    with open(tmp + "/file", "w"):
        pass
    r = run(src, "--json", "--pack-cache", "cache", env={"XDG_CACHE_HOME": tmp + "/file"})
    check(hash_of(r) == plain and "are not kept" in r[2], "no folder can be made", r)
    r = run(src, "--json", "--pack-cache", "beside",
            env={"XDG_CACHE_HOME": tmp + "/none"}, limit=65536)
    check(hash_of(r) == plain and "are not kept" in r[2] and not glob.glob(src + ".*"),
          "no room", r)
    r = sluice("pack", src, "/dev/null")
    check(r[0] == 1 and r[2].count("\n") == 1, "to a device", r)
    r = sluice("pack", src, tmp + "/file")
    check(r[0] == 1 and "--force" in r[2], "over another file", r)
    before = open(src, "rb").read()
    os.symlink(src, tmp + "/link.gguf")
    for dst in (src, tmp + "/link.gguf"):
        r = sluice("pack", src, dst, "--force")
        check(r[0] == 1 and "is the source itself" in r[2] and open(src, "rb").read() == before,
              "over its source", r)
    r = sluice("pack", os.path.join(tmp, "none.gguf"))
    check(r[0] == 1 and r[2].count("\n") == 1, "no source", r)


def killed(tmp):
    src = os.path.join(tmp, "killed.gguf")
    shutil.copy2(DEMO, src)
    packed = src + ".packed"
    t0 = time.time()
    check(sluice("pack", src)[0] == 0, "demo packs")
    whole = time.time() - t0
    n_none = 0
    for i in range(12):
        if os.path.exists(packed):
            os.remove(packed)
        p = subprocess.Popen([SLUICE, "pack", src],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            p.wait(whole * (i + 0.5) / 12)
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            p.wait()
        n_none += not os.path.exists(packed)
        if os.path.exists(packed):
            check(sluice("pack", "--check", packed)[0] == 0, f"killed {i}: what is there is whole")
        for t in glob.glob(packed + ".*.tmp"):
            # killed between the last byte and the renaming
            whole_tmp = sluice("pack", "--check", t)[0] == 0
            check(whole_tmp or sluice("inspect", t)[0] == 1,
                  f"killed {i}: what was begun does not load")
    check(n_none > 0, "some were killed in time")
    check(sluice("pack", src)[0] == 0 and not glob.glob(packed + ".*.tmp"),
          "the next one sweeps up", glob.glob(packed + ".*"))


with tempfile.TemporaryDirectory() as d:
    for k, m in enumerate(("qwen3.gguf", "deepseek_v3_fp8", "q_mla.gguf", "gpt_oss_mxfp4")):
        t = os.path.join(d, str(k))
        os.mkdir(t)
        found(t, m)
    for m in ("ascend_w8a8_bias.qwen3_moe", "ct_nvfp4.deepseek_v3", "ct_mixed.qwen3_moe"):
        quantised(d, m)
    described(d, "gptq_int8.qwen3_moe",
              lambda s: s.replace('"checkpoint_format": "gptq"', '"checkpoint_format": "gptq_v2"'))
    described(d, "ascend_w8a8_mix.qwen3_moe", lambda s: s.replace('"W8A8_MIX"', '"W8A8"', 1))
    first_start(d)
    killed(d)
print(f"{n_good} good, {n_bad} bad")
sys.exit(n_bad > 0)
