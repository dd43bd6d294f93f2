#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the program makes of the terminal and of pipes: the progress line, readers that leave, files
that are pipes.

  check_terminal.py [BUILD]
"""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import e2e

WORDS = "the quick brown fox "


class Screen:
    """Terminals of some columns for programs; their output as lines that were drawn."""

    def __init__(self, exe, tmp):
        self.exe, self.tmp = exe, tmp

    def run(self, args, columns, narrow_to=0):
        """(exit code, what each \\r and \\n separates); narrow_to: columns after the first progress
        line, then only what follows"""
        m, s = pty.openpty()
        fcntl.ioctl(s, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        p = subprocess.Popen([self.exe, *args], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=s)
        os.close(s)
        out, end = b"", time.time() + 120
        while time.time() < end:
            if not select.select([m], [], [], 0.1)[0]:
                if p.poll() is not None:
                    break
                continue
            try:
                piece = os.read(m, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
            if narrow_to and b"%" in out:
                fcntl.ioctl(m, termios.TIOCSWINSZ, struct.pack("HHHH", 24, narrow_to, 0, 0))
                out, narrow_to = b"", 0
        os.close(m)
        if p.poll() is None and time.time() >= end:
            p.kill()
        return p.wait(), [x for x in re.split(r"\x1b\[K|\r|\n", out.decode()) if x]


def line_faults(lines, columns, total=None):
    """What is wrong with the progress lines among these (None: nothing)."""
    bars = [x for x in lines if "%" in x and "machine" not in x and "tok/s |" not in x]
    if not bars:
        return f"no progress line in {lines[:5]}"
    wide = [x for x in bars if len(x) >= columns]
    if wide:
        return f"{len(wide[0])} of {columns} columns: {wide[0]!r}"
    over = [x for x in bars for n in [re.search(r"(\d+) ?%", x)] if not n or int(n[1]) > 100]
    if over or any(re.search(r"-\d|inf|nan", x) for x in bars):
        return f"over 100 % or no time: {(over or bars)[0]!r}"
    totals = {int(x) for x in re.findall(r"of (\d+) tok", " ".join(bars))}
    if total and totals != {total}:
        return f"total {sorted(totals)} of {total} tokens in {bars[0]!r}"
    return None


def long_prompt(screen, exe, model, path, word):
    """(arguments, tokens) of a prompt of words that takes long enough for progress lines, and not
    much longer."""
    for n in range(8, 18):
        open(path, "w").write(word * 2**n)
        ids = json.loads(e2e.run([exe, "tokenize", "-m", model], stdin=open(path, "rb").read())[1])
        args = ["run", "-m", model, "-f", path, "-n",
                "1", "-c", "1000000", "-t", "1", "--acts", "f32", "--kv", "f32"]
        t = time.time()
        _, lines = screen.run(args, 300)
        if time.time() - t > 1.2 and any("%" in x and "|" not in x for x in lines):
            break
    return args, len(ids), lines


def progress(tally, exe, tmp):
    """Prompts of tokens that are nothing like four bytes long, on terminals of several widths."""
    screen, model = Screen(exe, tmp), e2e.tiny() + "/qwen3"
    for name, word in (("digits", "0123456789 "), ("words", WORDS)):
        args, n, lines = long_prompt(screen, exe, model, f"{tmp}/{name}", word)
        tally.check(f"{name} in 300 columns", line_faults(lines, 300, n))
    for columns in (30, 12):
        code, lines = screen.run(args, columns)
        tally.check(f"{columns} columns", code and f"exit {code}: {lines[-1:]}"
                    or line_faults(lines, columns, n if columns == 30 else 0))
    code, lines = screen.run([*args, "-q"], 80)
    tally.check("quiet", [x for x in lines if "%" in x] or (code and f"exit {code}"))
    text = open(f"{tmp}/words").read()
    for _ in range(6):  # long enough for lines before and after
        open(f"{tmp}/words", "a").write(text[:len(text) // 2])
        code, lines = screen.run(args, 100, narrow_to=24)
        if any("%" in x and "|" not in x for x in lines):
            break
    tally.check("a terminal that gets narrow", code and f"exit {code}" or line_faults(lines, 24))


def closed_pipes(tally, exe, tmp):
    """Who reads no more ends the program quietly, as SIGPIPE does; a full disk is said."""
    model = e2e.tiny() + "/qwen3"
    big = tmp + "/big.txt"
    open(big, "w").write(WORDS * 60000)
    batch = tmp + "/batch.jsonl"
    open(batch, "w").write('{"prompt":"x","n":8}\n' * 3000)
    for name, args, n in (("run", ["run", "-m", model,
                                   "-p", "a", "-n", "2000", "--ignore-eos", "-c", "4096"], 3),
                          ("run --json", ["run", "-m", model, "-p", "a", "-n", "4", "--json"], 0),
                          ("run --batch-file", ["run", "-m", model, "--batch-file", batch], 3),
                          ("tokenize", ["tokenize", "-m", model], 3),
                          ("--help", ["--help"], 0), ("--man", ["--man"], 0),
                          ("inspect", ["inspect", model, "--tensors"], 0)):
        with open(big, "rb") as stdin:
            p = subprocess.Popen([exe, *args], stdin=stdin,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if n:
            p.stdout.read(n)
        p.stdout.close()
        err = p.stderr.read().decode()
        code = p.wait()
        quiet = not re.search("failed|pipe", err)
        tally.check("closed pipe: " + name, not (quiet and code == -signal.SIGPIPE)
                    and f"exit {code}: {err.strip()[:200]!r}")
    with open("/dev/full", "w") as full:
        p = subprocess.run([exe, "--man"], stdout=full, stderr=subprocess.PIPE, text=True)
    tally.check("full disk", e2e.one_line_failure(p.returncode, p.stderr)
                or ("disk full" not in p.stderr and p.stderr))
    for args in ["--man"], ["run", "-q", "-m", model, "--ids", "5", "-n", "3"]:
        p = subprocess.run([exe, *args], stderr=subprocess.PIPE, text=True,
                           preexec_fn=lambda: os.close(1))
        tally.check(f"closed output: {args[0]}", e2e.one_line_failure(p.returncode, p.stderr)
                    or ("output: it is closed" not in p.stderr and p.stderr))


def pipes_as_files(tally, exe, tmp):
    """Files that are read once may be pipes: <(command), /dev/stdin, named pipes; weights may
    not."""
    model, want = e2e.tiny() + "/qwen3", None
    os.mkfifo(tmp + "/fifo")
    put = {"text": "Once upon a time", "schema": '{"type":"integer"}',
           "batch": '{"prompt":"Once","n":4}\n', "messages": '[{"role":"user","content":"hi"}]',
           "tools": '[{"type":"function","function":{"name":"f"}}]',
           "template": "M{{ messages[0].content }}", "config": '{"n": 3}', "ids": "1,2,3",
           "gbnf": 'root ::= "a" | "b"'}
    for k, v in put.items():
        open(f"{tmp}/{k}", "w").write(v)
    cases = [("-f", "run -q -n 4 -f {}", "text"),
             ("--json-schema", "run -q -n 4 -p a --json-schema {}", "schema"),
             ("--grammar", "run -q -n 4 -p a --grammar {}", "gbnf"),
             ("--batch-file", "run --batch-file {}", "batch"),
             ("--config", "run -q -p a --config {}", "config"),
             ("--messages", "template --messages {}", "messages"),
             ("--tools", f"template --messages {tmp}/messages --tools {{}}", "tools"),
             ("--template", f"template --template {{}} --messages {tmp}/messages", "template"),
             ("--chat-template", f"template --chat-template {{}} --messages {tmp}/messages",
              "template"),
             ("--ids-file", f"eval --ids-file {{}} --dump-logits {tmp}/out", "ids")]
    for name, args, what in cases:
        words = [exe, *args.split()]
        if "--template" not in args:
            words[2:2] = ["-m", model]
        got = []
        for path in (f"{tmp}/{what}", "/dev/stdin", tmp + "/fifo", "/dev/fd/0"):
            argv = [w.format(path) for w in words]
            if path == tmp + "/fifo":
                feed = subprocess.Popen(["sh", "-c", f"cat {tmp}/{what} > {path}"])
            code, out, err = e2e.run(argv, stdin=put[what].encode())
            if path == tmp + "/fifo":
                feed.kill()
                feed.wait()
            got.append((code, re.sub(rb'"tps":[^,}]*', b"", out),
                        err.replace(path, "FILE") if code else ""))
            want = got[0]
        tally.check("pipe: " + name,
                    (want[0] and f"{want}") or (any(g != want for g in got) and f"{got}"))
    for name, args, text in (("a folder", ["run", "-p", "a", "--json-schema", tmp], "directory"),
                             ("weights", ["inspect", tmp + "/fifo"], "pipe"),
                             ("no end", ["run", "-p", "a", "--config", "/dev/zero"], "at most")):
        code, _, err = e2e.run([exe, *args])
        tally.check("pipe: " + name, e2e.one_line_failure(code, err) or (text not in err and err))


def main():
    exe, tally = e2e.sluice(), e2e.Tally("terminal")
    try:
        a, b = pty.openpty()
    except OSError as e:
        print(f"terminal: skipped: no terminal to be had here: {e}")
        sys.exit(77)
    os.close(a)
    os.close(b)
    with e2e.scratch() as tmp:
        progress(tally, exe, tmp)
        closed_pipes(tally, exe, tmp)
        pipes_as_files(tally, exe, tmp)
    tally.exit()


if __name__ == "__main__":
    main()
