#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several servers of one engine: four give the answers of one; what a key may is what it may of all
together; and one that is killed takes nothing from the others: neither their speed nor what its own
requests had of a key's limits.

  check_fronts.py [BUILD] [--long [--rounds N]]
      --long: the gaps between others' events, with and without a kill, N (30) times each in turn
"""
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = "--long" in sys.argv
ROUNDS = (int(sys.argv.pop(sys.argv.index("--rounds") + 1)) if "--rounds" in sys.argv else
          30 if LONG else 1)
sys.argv = [a for a in sys.argv if a not in ("--long", "--rounds")]
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e", "serve"), os.path.join(HERE, "..", "e2e")]
import check_attach as attach  # noqa: E402
import e2e  # noqa: E402
from check_attach import CHAT, until  # noqa: E402
from serve import Engine, Server, chat, key_line  # noqa: E402

T = e2e.Tally("fronts")
FRONTS = 4
STORY = dict(max_tokens=1500, ignore_eos=True)


def need(name, cond, what=""):
    T.check(name, None if cond else (str(what) or "not so"))


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def at_once(calls):
    """What each of them returns, all called at the same time."""
    out = [None] * len(calls)

    def run(i):
        out[i] = calls[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def same_answers(e, fronts):
    """Each of the eight kinds of requests, on each server, all at the same time."""
    with Server(engine=e) as one:
        want = answers([one] * len(attach.ASKED))
    got = answers([fronts[i % FRONTS] for i in range(2 * len(attach.ASKED))])
    need("four give the answers of one", got == want + want,
         [i for i, g in enumerate(got) if g != want[i % len(want)]])


def answers(servers):
    asked = [attach.Asked(s, i % len(attach.ASKED)) for i, s in enumerate(servers)]
    for a in asked:
        a.join(300)
    return [a.answer() if a.done else a.cut for a in asked]


def limits(e, keys):
    with Server("--api-key-file", keys, engine=e) as a, \
            Server("--api-key-file", keys, engine=e) as b, \
            Server("--api-key-file", keys, engine=e) as c:
        some = [a, b, c, Server("--api-key-file", keys, engine=e)]
        parallel(some, some[3])
        need("what a killed server had is free again", until(lambda: held(a, 3) == 3))
        got = [some[i % 3].call("POST", CHAT, chat(max_tokens=1), bearer("sk-minute"))
               for i in range(9)]
        need("requests a minute are of all together", [g[0] for g in got] == [200] * 7 + [429] * 2,
             [g[0] for g in got])
        need("which says when again", 1 <= int(got[8][1]["retry-after"]) <= 60, got[8][1])
        got = at_once([lambda s=some[i % 3]: s.call("POST", CHAT, chat(max_tokens=1),
                                                    bearer("sk-rush"))[0] for i in range(24)])
        need("and where they come at once", sorted(got) == [200] * 10 + [429] * 14, got)
        got = [some[i % 3].call("POST", CHAT, chat(), bearer("sk-token"))[0] for i in range(6)]
        need("tokens a minute are of all together", got[0] == 200 and 429 in got[1:] and
             got == sorted(got), got)


def story(server):
    """(status, socket) of a stream of the key for three at once; it goes on until it is closed."""
    s = server.open(dict(chat("A story", **attach.LONG), stream=True), headers=bearer("sk-three"))
    return int(s.recv(12).split()[1]), s


def let_in(stories):
    """The sockets of those; the others are closed."""
    for status, s in stories:
        if status != 200:
            s.close()
    return [s for status, s in stories if status == 200]


def over(server, socks):
    """They end, and nothing runs any more."""
    for s in socks:
        s.close()
    until(lambda: server.metric("vllm:num_requests_running", bearer("sk-free")) == 0)


def held(server, n):
    """How many of n streams of the key for three at once are let in, one after the other."""
    socks = let_in([story(server) for _ in range(n)])
    over(server, socks)
    return len(socks)


def parallel(some, last):
    """Three at once, wherever they come; the last server is killed while it has two of them."""
    mine = let_in([story(last) for _ in range(2)])
    need("two are let in", len(mine) == 2)
    got = at_once([lambda s=some[i]: story(s) for i in range(3)])
    need("of more at once no two", sorted(x for x, _ in got) in ([429] * 3, [200, 429, 429]), got)
    hold = let_in(got) or until(lambda: let_in([story(some[0])]))
    need("a third", hold)
    got = [s.call("POST", CHAT, chat(), bearer("sk-three"))[0] for s in some]
    need("no fourth on any server", got == [429] * FRONTS, got)
    need("other keys have their own", some[1].call("POST", CHAT, chat(max_tokens=1),
                                                   bearer("sk-free"))[0] == 200)
    last.proc.kill()
    last.proc.wait()
    got = let_in([story(some[1]) for _ in range(2)])
    need("two more in its place", len(got) == 2)
    need("and no third", some[2].call("POST", CHAT, chat(), bearer("sk-three"))[0] == 429)
    over(some[0], [*got, *hold])


# ---- one is killed ----

def gaps(stories, t0, t1):
    """Seconds between the events of streams, of those in [t0, t1]."""
    out = []
    for s in stories:
        at = [t for t in s.times if t0 <= t <= t1]
        out += [b - a for a, b in zip(at, at[1:])]
    return out


def round_of(e, fronts, kill):
    """Six streams on three servers, two on a fourth, which is killed; gaps of the six."""
    with Server("--stream-interval-ms", "0", engine=e) as last:
        mine = [attach.Story(f, f"Story {i}", **STORY) for i in range(2) for f in fronts[:3]]
        others = [attach.Story(last, f"Other {i}", **STORY) for i in range(2)]
        need("they run", attach.running(mine + others, 20))
        t0 = time.time()
        if kill:
            last.proc.kill()
            last.proc.wait()
        time.sleep(1.5)
        t1 = time.time()
        for s in mine:
            s.join(120)
        for s in others:
            s.join(120)
    need("others are whole", all(s.done and not s.error() for s in mine),
         [s.error() or s.cut for s in mine])
    return gaps(mine, t0, t1), [s.text() for s in mine]


def p99(v):
    return sorted(v)[int(len(v) * 0.99)] if v else 0


def killed(e, fronts):
    quiet, after, want = [], [], None
    for _ in range(ROUNDS):
        for kill, to in ((False, quiet), (True, after)):
            more, texts = round_of(e, fronts, kill)
            to += more
            want = want or texts
            need("and the same", texts == want)
    print(f"gaps of others: p99 {1e3 * p99(quiet):.1f} ms, beside a server that is killed "
          f"{1e3 * p99(after):.1f} ms ({len(quiet)} and {len(after)})", flush=True)
    if LONG:
        need("others' p99 stays", p99(after) <= 1.1 * p99(quiet), (p99(after), p99(quiet)))


def of_keys():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, \
            Engine("--max-batch", "16", env={"SL_CPU": "ref"}) as e:  # streams last, whoever waits
        f.write(key_line("three", "sk-three", "parallel=3") +
                key_line("minute", "sk-minute", "requests=7") +
                key_line("rush", "sk-rush", "requests=10") +
                key_line("token", "sk-token", "tokens=60") + key_line("free", "sk-free"))
        f.flush()
        limits(e, f.name)


def of_streams():
    with Engine("--max-batch", "16") as e:
        fronts = [Server("--stream-interval-ms", "0", engine=e) for _ in range(FRONTS)]
        same_answers(e, fronts)
        killed(e, fronts)
        for s in fronts:
            s.stop()


def main():
    if not LONG:
        attach.shorter(120)
        STORY["max_tokens"] = 700
    with ThreadPoolExecutor(1 if LONG else 2) as pool:  # gaps are measured alone
        for job in [pool.submit(of_streams), pool.submit(of_keys)]:
            job.result()
    T.exit()


if __name__ == "__main__":
    main()
