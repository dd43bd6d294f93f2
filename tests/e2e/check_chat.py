#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice chat in a terminal of its own: an answer, Ctrl-C stops an answer and not the program, Ctrl-C at the prompt leaves with 130
within a second and gives the terminal back as it was.

  check_chat.py [BUILD]
"""
import os
import pty
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
            if until and got.rstrip().endswith(until):
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
    tally.check("stats", b"tok/s" not in stats and f"no figures: {stats!r}")
    t = time.time()
    os.write(fd, b"\x03")
    code = wait(pid, fd, 5)
    tally.check("Ctrl-C at the prompt", (code != 130 or time.time() - t > 2) and f"exit {code} after {time.time() - t:.1f} s")

    pid, fd = start(exe, model, "-n", "0", "-c", "100000", "-q", "--ignore-eos")
    read(fd, 30, b">")
    os.write(fd, b"hello\r")
    read(fd, 1.0)
    os.write(fd, b"\x03")
    back = read(fd, 20, b">")
    tally.check("Ctrl-C stops the answer", not back.rstrip().endswith(b">") and f"no prompt: {back[-200:]!r}")
    tally.check("terminal", termios.tcgetattr(fd)[3] & termios.ISIG != lflag & termios.ISIG and "ISIG changed")
    os.write(fd, b"/quit\r")
    code = wait(pid, fd, 10)
    tally.check("/quit", code != 0 and f"exit {code}")
    tally.exit()


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit(0)
    main()
