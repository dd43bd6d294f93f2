#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice chat in a terminal of its own: an answer, Ctrl-C stops an answer and not the program,
Ctrl-C at the prompt leaves with 130 within a second and gives the terminal back as it was.

  check_chat.py [BUILD]
"""
import json
import os
import pty
import re
import select
import signal
import sys
import termios
import time

import e2e


def read(fd, seconds, until=None):
    got, end = b"", time.time() + seconds
    while time.time() < end:
        if select.select([fd], [], [], 0.05)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:
                return got
            if not piece:
                return got
            got += piece
            if until and (got.endswith(until) or got.rstrip().endswith(until)):
                # a prompt that is drawn once more is not yet the next one
                if not select.select([fd], [], [], 0.05)[0]:
                    return got
    return got


def wait(pid, fd, seconds):
    end = time.time() + seconds
    while time.time() < end:
        read(fd, 0.05)
        p, status = os.waitpid(pid, os.WNOHANG)
        if p:
            return os.waitstatus_to_exitcode(status)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def start(exe, model, *more):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.environ["LC_ALL"] = "C.UTF-8"
        os.execv(exe, [exe, "chat", "-m", model, *more])
    return pid, fd


# what is typed and pasted, and the message that must come of it
PASTE_ON, PASTE_OFF = b"\x1b[200~", b"\x1b[201~"
BIG = "".join(f"line {i} of the paste, some words longer\n" for i in range(400)).rstrip("\n")
ENTRIES = [
    ("a paste of three lines", [PASTE_ON + b"one\ntwo\nthree" + PASTE_OFF, b"\r"],
     "one\ntwo\nthree"),
    ("carriage returns, as terminals send them",
     [PASTE_ON + b"one\rtwo\r\nthree\r" + PASTE_OFF, b"\r"], "one\ntwo\nthree"),
    ("words around it", [b"say: ", PASTE_ON + b"a\nb" + PASTE_OFF,
                         b" ok", PASTE_ON + b"c\n\td" + PASTE_OFF, b"\r"], "say: a\nb okc\n\td"),
    ("a short paste can be edited", [PASTE_ON + "naïve x".encode() + PASTE_OFF, b"\x7fy\r"],
     "naïve y"),
    ("a paste that looks like a command", [PASTE_ON + b"/quit\nnow" + PASTE_OFF, b"\r"],
     "/quit\nnow"),
    ("controls and a false end in it", [PASTE_ON + b"a\tb\x1b[20\nc~" + PASTE_OFF, b"\r"],
     "a\tb\x1b[20\nc~"),
    ("a long paste", [PASTE_ON + BIG.replace("\n", "\r").encode() + PASTE_OFF, b"\r"], BIG),
    ("a tilde", [b"~a ~ b\r"], "~a ~ b"),
    ("backslashes", [b"one\\\r", b"two\\\\\\\r", b"three\\\\\r"], "one\ntwo\\\\\nthree\\\\"),
    ("quotes", [b'"""\r', b"\r", b"  def f():\r", b"    pass\r", b'"""\r'],
     "\n  def f():\n    pass"),
    ("quotes with text beside them", [b'"""one\r', b'two"""\r'], "one\ntwo"),
    ("a pasted path", [PASTE_ON + b"C:\\dir\\" + PASTE_OFF, b" is what?\r"], "C:\\dir\\ is what?"),
    ("a pasted path at the end", [PASTE_ON + b"C:\\dir\\" + PASTE_OFF, b"\r"], "C:\\dir\\"),
    ("quotes in a paste", [PASTE_ON + b'"""x' + PASTE_OFF, b"\r"], '"""x'),
    ("a path is no command", [b"/etc/hosts is what?\r"], "/etc/hosts is what?"),
    ("a command in quotes", [b'"""/quit"""\r'], "/quit"),
    ("a mark that was changed", [PASTE_ON + b"a\nb" + PASTE_OFF, b"\x7f\r"], None),
    ("a mark from the history", [PASTE_ON + b"p\nq" + PASTE_OFF, b"\r"], "p\nq"),
]


def entries(tally, exe, model, tmp):
    """Each entry is one message: the conversation is saved after it."""
    saved = tmp + "/saved.json"
    pid, fd = start(exe, model, "-n", "2", "-q", "-c", "32768")
    first = read(fd, 30, b">")
    tally.check("paste mode", b"\x1b[?2004h" not in first and f"not asked for: {first!r}")
    extra = [("the same once more", [b"\x1b[A", b"\r"], "p\nq")]
    for name, keys, want in ENTRIES + extra:
        if extra and name == extra[0][0]:
            keys = [b"\x1b[A\x1b[A\x1b[A"] + keys[1:]  # over /save and /reset
        for k in keys[:-1]:
            os.write(fd, k)
            read(fd, 0.1)
        os.write(fd, keys[-1])
        read(fd, 20, b"> ")
        os.write(fd, b"/save " + saved.encode() + b"\r")
        read(fd, 10, b">")
        try:
            users = [m["content"] for m in json.load(open(saved)) if m["role"] == "user"]
            os.unlink(saved)
        except OSError as e:
            users = repr(e)
        tally.check(name, users != [want] * (want is not None)
                    and f"{str(users)[:300]!r}, not {str(want)[:100]!r}")
        os.write(fd, b"/reset\r")
        read(fd, 10, b">")
    os.write(fd, b"/quit\r")
    rest = b""
    end = time.time() + 10
    while b"\x1b[?2004l" not in rest and time.time() < end:
        rest += read(fd, 0.2)
    tally.check("paste mode off", b"\x1b[?2004l" not in rest and f"left on: {rest!r}")
    wait(pid, fd, 10)


def main():
    exe, model = e2e.sluice(), e2e.tiny() + "/qwen3"
    tally = e2e.Tally("chat")

    try:
        pid, fd = start(exe, model, "-n", "20")
    except OSError as e:  # a container without /dev/pts
        print(f"chat: skipped: no terminal to be had here: {e}")
        sys.exit(77)
    lflag = termios.tcgetattr(fd)[3]
    first = read(fd, 30, b">")
    tally.check("prompt", b">" not in first and f"no prompt: {first[-200:]!r}")
    os.write(fd, b"hello\r")
    answer = read(fd, 30, b">")
    tally.check("answer", len(answer) < 20 and f"too short: {answer!r}")
    os.write(fd, b"/stats\r")
    stats = read(fd, 10, b">")
    one, both = (re.search(rb" (\d+) %s" % k, stats)
                 for k in (b"tok, [0-9.]+ tok/s", b"answer tok"))
    tally.check("stats", not (one and both and one[1] == both[1] != b"0") and f"figures: {stats!r}")
    t = time.time()
    os.write(fd, b"\x03")
    code = wait(pid, fd, 5)
    tally.check("Ctrl-C at the prompt", (code != 130 or time.time() - t > 2)
                and f"exit {code} after {time.time() - t:.1f} s")

    pid, fd = start(exe, model, "-n", "0", "-c", "100000", "-q", "--ignore-eos")
    read(fd, 30, b">")
    os.write(fd, b"hello\r")
    read(fd, 1.0)
    os.write(fd, b"\x03")
    back = read(fd, 20, b">")
    tally.check("Ctrl-C stops the answer",
                not back.rstrip().endswith(b">") and f"no prompt: {back[-200:]!r}")
    tally.check("terminal", termios.tcgetattr(fd)[3] & termios.ISIG != lflag & termios.ISIG
                and "ISIG changed")
    os.write(fd, b"/quit\r")
    code = wait(pid, fd, 10)
    tally.check("/quit", code != 0 and f"exit {code}")
    with e2e.scratch() as tmp:
        entries(tally, exe, model, tmp)
    tally.exit()


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit(0)
    main()
