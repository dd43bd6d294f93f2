#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the demo model on a CPU.

  train.py WORK --until HH:MM      the schedule runs by the clock (UTC) and ends then, whatever the
                                   speed
  train.py WORK --steps N          the schedule runs by steps: the same seed gives the same run
  train.py WORK --init FILE.gguf   begin from an exported model instead of random weights

WORK holds docs.bin, chat.bin and chat.mask (made by tokens.py), and gets checkpoint.pt (every
--every seconds, written beside and renamed; the run continues from it when started again) and
log.jsonl. SIGTERM ends it after the step with a checkpoint.

Matrices are trained with Muon (orthogonalised momentum, scaled to AdamW's size), embeddings, head,
router and norms with AdamW. One rate: linear warm-up, level, then linear to zero. The routers'
biases move by a fixed step against each expert's load, as in DeepSeek-V3: there is no auxiliary
loss.
"""
import argparse
import datetime
import json
import math
import os
import signal
import time

import numpy as np
import torch
import torch.multiprocessing as mp

from model import CONFIG, Model

TOKENS = 4096       # a step (8192 in the first 450 of the committed run)
PIECE = 2048        # a forward and backward pass
RATE = {'embed': 6.0, 'head': 1.5}   # of AdamW's parameters, times the level rate (others 0.5)
MTP = ('mtp', 'mtp_norm', 'enorm', 'hnorm', 'eh_proj')
DOCS_WEIGHT = 0.7   # of a token of documentation in the loss; the assistant's have 1, all others 0


def muon_direction(g):
    """The nearest semi-orthogonal matrices to a stack g [n, r, c], r <= c, by five Newton-Schulz
    steps."""
    x = (g / (g.flatten(1).norm(dim=1)[:, None, None] + 1e-7)).bfloat16()
    for a, b, c in ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
                    (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.float()


class Optimiser:
    """Muon and AdamW on parameters and state that all ranks share; each rank updates its own part
    of them."""

    def __init__(self, model, ranks):
        c = model.c
        self.t, self.state, cost = 0, {}, [0] * ranks
        self.mine = [[] for _ in range(ranks)]
        rows = []
        for name, p in model.named_parameters():
            adam = p.dim() < 2 or name in ('embed', 'head') or name.endswith('router')
            n = 2 * c['experts'] if name.endswith('.gu') else c['experts'] if p.dim() == 3 else 1
            rows.append((p.numel() * (1 if adam else 4), name, p, 0 if adam else n))
            self.state[name] = torch.zeros(2 if adam else 1, *p.shape).share_memory_()
        for work, name, p, n in sorted(rows, key=lambda r: (-r[0], r[1])):
            r = cost.index(min(cost))
            cost[r] += work
            self.mine[r].append((name, p, n))

    @torch.no_grad()
    def gather(self, rank, grads):
        """Add up the ranks' gradients of this rank's part; their sum of squares."""
        self.grad, total = {}, 0.0
        for name, _, _ in self.mine[rank]:
            g = grads[0][name]
            for other in grads[1:]:
                g.add_(other[name])
            self.grad[name] = g
            total += g.square().sum().item()
        return total

    @torch.no_grad()
    def step(self, rank, lr, clip, mtp):
        self.t += 1
        b1, b2 = 0.9, 0.95
        groups = {}
        for key, p, n in self.mine[rank]:
            if not mtp and key.split('.')[0] in MTP:
                continue
            grad = self.grad[key].mul_(clip)
            rate = lr * (3.0 if key.split('.')[0] in MTP else 1.0)
            if n == 0:
                m, v = self.state[key]
                m.lerp_(grad, 1 - b1)
                v.lerp_(grad.square(), 1 - b2)
                d = (m / (1 - b1 ** self.t)) / ((v / (1 - b2 ** self.t)).sqrt() + 1e-10)
                p.add_(d, alpha=-rate * RATE.get(key, 0.5))
                continue
            m = self.state[key][0]
            m.mul_(0.95).add_(grad)
            g = grad.add(m, alpha=0.95).view(n, -1, p.shape[-1])
            turned = g.shape[1] > g.shape[2]
            g = g.mT if turned else g
            groups.setdefault(g.shape[1:], []).append((p, g, turned, rate))
        for shape, items in groups.items():
            d = muon_direction(torch.cat([g for _, g, _, _ in items]))
            at = 0
            for p, g, turned, rate in items:
                u = d[at:at + len(g)]
                at += len(g)
                u = (u.mT if turned else u).reshape(p.shape)
                p.mul_(1 - rate * 0.05).add_(u, alpha=-rate * 0.2 * math.sqrt(max(shape)))


class Data:
    """Rows of t + 2 tokens with a loss weight each; documents in shuffled windows, chats
    likewise."""

    def __init__(self, work, rng):
        self.rng = rng
        self.docs = np.fromfile(os.path.join(work, 'docs.bin'), np.uint16)
        self.chat = None
        if os.path.exists(os.path.join(work, 'chat.bin')):
            self.chat = np.fromfile(os.path.join(work, 'chat.bin'), np.uint16)
            self.mask = np.fromfile(os.path.join(work, 'chat.mask'), np.uint8)
            self.starts = np.flatnonzero(self.chat == 0)
        self.order = {}
        self.seen = {'docs': 0, 'chat': 0}

    def window(self, kind, data, t):
        """The next start of a window of t tokens, each epoch a new shuffle at a new offset."""
        o = self.order.get((kind, t))
        if not o:
            first = int(self.rng.integers(0, t))
            o = (np.arange((len(data) - t - 2 - first) // t) * t + first)
            self.rng.shuffle(o)
            o = self.order[(kind, t)] = list(o)
        self.seen[kind] += t
        return o.pop()

    def batch(self, t, share):
        """ids [B, t+2] and weights [B, t+2] of which about `share` of the rows are chat."""
        ids, w = [], []
        rows = TOKENS // t
        chats = int(share * rows + self.rng.random()) if self.chat is not None else 0
        for i in range(rows):
            if i % 2 == 0 and i // 2 < chats or i % 2 and (rows + 1) // 2 + i // 2 < chats:
                s = self.window('chat', self.chat, t)
                s = self.starts[min(np.searchsorted(self.starts, s),
                                    len(self.starts) - 1)]  # a row begins a chat
                s = min(s, len(self.chat) - t - 2)
                ids.append(self.chat[s:s + t + 2])
                w.append((self.mask[s:s + t + 2] > 0).astype(np.float32))
            else:
                s = self.window('docs', self.docs, t)
                ids.append(self.docs[s:s + t + 2])
                w.append(np.full(t + 2, DOCS_WEIGHT, np.float32))
        return torch.from_numpy(np.stack(ids).astype(np.int64)), torch.from_numpy(
            np.stack(w)).float()


def schedule(p, step, level):
    """At progress p: learning rate, row length, share of chat rows, step of the balancing bias."""
    lr = level * min(1.0, (step + 1) / 60)
    lr *= min(1.0, (1.0 - p) / 0.7) if p < 0.8 else 0.286 * min(1.0, (1.0 - p) / 0.1)
    if p < 0.6:
        t, share = 256, 0.35 if p < 0.12 else 0.6 if p < 0.23 else 0.85
    elif step % (5 if p < 0.9 else 12) == 0:
        t, share = 1024, 0.0
    else:
        t, share = 512 if 0.85 <= p < 0.9 else 256, 1.0
    return lr, t, share, 1e-2 if p < 0.3 else 4e-3 if p < 0.6 else 1e-3 if p < 0.9 else 0.0


def save(path, obj):
    torch.save(obj, path + '.new')
    os.replace(path + '.new', path)


class Team:
    """Single-threaded processes that share one model: each takes the next piece of a step's batch
    until none is left, then updates its part of the parameters. A thread team inside the matrix
    products would wait at thousands of barriers a step, which is slow on a machine that others use
    too; this waits at four."""

    def __init__(self, model, ranks):
        self.model, self.ranks = model.share_memory(), ranks
        self.moes = [b.ffn for b in list(model.blocks) + [model.mtp] if not b.dense]
        self.opt = Optimiser(model, ranks)
        self.grads = [{n: torch.zeros_like(p).share_memory_() for n, p in model.named_parameters()}
                      for _ in range(ranks)]
        self.load = torch.zeros(ranks, len(self.moes), model.c['experts']).share_memory_()
        self.out = torch.zeros(ranks, 3, dtype=torch.float64).share_memory_()
        self.ids = torch.zeros(TOKENS * 2, dtype=torch.int64).share_memory_()
        self.weight = torch.zeros(TOKENS * 2).share_memory_()
        self.control = torch.zeros(8, dtype=torch.float64).share_memory_()
        self.next = mp.Value('i', 0)
        self.gate = mp.Barrier(ranks)
        for r in range(1, ranks):
            mp.Process(target=self.serve, args=(r,), daemon=True).start()
        self.bind(0)

    def bind(self, rank):
        torch.set_num_threads(1)
        if rank:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.model.train()
        for n, p in self.model.named_parameters():
            p.grad = self.grads[rank][n]

    def serve(self, rank):
        os.setsid()   # a session of its own: schedulers that share by session then see two jobs
        self.bind(rank)
        while True:
            self.gate.wait()
            self.work(rank)

    def work(self, rank):
        """One step's share; control = row length, rows, learning rate, steps done by the
        optimiser."""
        t, rows, lr = int(self.control[0]), int(self.control[1]), self.control[2].item()
        self.opt.t = int(self.control[3])
        ids = self.ids[:rows * (t + 2)].view(rows, t + 2)
        w = self.weight[:rows * (t + 2)].view(rows, t + 2)
        for g in self.grads[rank].values():
            g.zero_()
        main = mtp = 0.0
        piece = PIECE // t
        drafts = max(1, int(piece * self.control[4].item())) if self.control[4] > 0 else 0
        total = w[:, 1:t + 1].sum()
        head = torch.cat([w[i:i + drafts, 2:t + 2]
                          for i in range(0, rows, piece)]).sum().clamp(min=1e-3)
        while True:
            with self.next.get_lock():
                at = self.next.value
                self.next.value += piece
            if at >= rows:
                break
            a, k = ids[at:at + piece], w[at:at + piece]
            x = self.model(a[:, :t])
            loss = self.model.loss(x, a[:, 1:t + 1], k[:, 1:t + 1] / total)
            main += loss.item()
            if drafts:
                d = self.model.draft(x[:drafts], a[:drafts, 1:t + 1])
                ahead = self.model.loss(d, a[:drafts, 2:t + 2], k[:drafts, 2:t + 2] / head)
                mtp += ahead.item()
                loss = loss + 0.2 * ahead
            loss.backward()
        for i, f in enumerate(self.moes):
            self.load[rank, i] = f.load
            f.load.zero_()
        self.out[rank, 0], self.out[rank, 1] = main, mtp
        self.gate.wait()
        self.out[rank, 2] = self.opt.gather(rank, self.grads)
        self.gate.wait()
        norm = self.out[:, 2].sum().sqrt().item()
        self.opt.step(rank, lr, min(1.0, 2.0 / (norm + 1e-9)), drafts > 0)
        self.gate.wait()
        return norm

    def step(self, ids, w, lr, balance, share):
        """Losses and gradient norm of one step on rows ids and weights w of shape [rows, t + 2];
        `share` of the rows train the MTP layer too."""
        self.ids[:ids.numel()] = ids.flatten()
        self.weight[:w.numel()] = w.flatten()
        self.control[:5] = torch.tensor(
            [ids.shape[1] - 2, len(ids), lr, self.opt.t, share], dtype=torch.float64)
        self.next.value = 0
        self.gate.wait()
        norm = self.work(0)
        load = self.load.sum(0)
        for f, n in zip(self.moes, load):
            f.bias += balance * torch.sign(n.mean() - n)
        peak = (load.max(1)[0] / load.mean(1).clamp(min=1.0)).max().item()
        return np.array([self.out[:, 0].sum().item(), self.out[:, 1].sum().item(), norm]), peak


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('work')
    ap.add_argument('--until')
    ap.add_argument('--steps', type=int)
    ap.add_argument('--init')
    ap.add_argument('--lr', type=float, default=3.5e-3, help='the level rate')
    ap.add_argument('--seed', type=int, default=20)
    ap.add_argument('--every', type=int, default=180)
    ap.add_argument('--processes', type=int, default=2)
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    rng = np.random.default_rng(a.seed)
    model = Model(CONFIG)
    if a.init:
        from gguf_io import load_gguf
        load_gguf(a.init, model)
    team = Team(model, a.processes)
    opt = team.opt
    ck = os.path.join(a.work, 'checkpoint.pt')
    begin, step, tokens, seen = time.time(), 0, 0, {'docs': 0, 'chat': 0}
    if os.path.exists(ck):
        s = torch.load(ck, weights_only=False)
        model.load_state_dict(s['model'])
        for k, v in s['opt'].items():
            opt.state[k].copy_(v)
        opt.t, step, tokens, begin, seen = s['t'], s['step'], s['tokens'], s['begin'], s['seen']
        rng = np.random.default_rng([a.seed, step])
        print('continues at step', step, flush=True)
    data = Data(a.work, rng)
    data.seen = seen
    end = None
    if a.until:
        h, m = a.until.split(':')
        now = datetime.datetime.now(datetime.timezone.utc)
        end = now.replace(hour=int(h), minute=int(m), second=0)
        end = (end if end > now else end + datetime.timedelta(days=1)).timestamp()
    log = open(os.path.join(a.work, 'log.jsonl'), 'a')
    saved = last = time.time()
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    sums, since = np.zeros(3), 0

    def keep():
        save(
            ck,
            dict(model=model.state_dict(),
                 opt=opt.state,
                 t=opt.t,
                 step=step,
                 tokens=tokens,
                 begin=begin,
                 seen=data.seen,
                 config=CONFIG))

    while True:
        p = (time.time() - begin) / (end - begin) if end else step / a.steps
        if p >= 1 or stop:
            break
        lr, t, share, balance = schedule(p, step, a.lr)
        ids, w = data.batch(t, share)
        losses, peak = team.step(ids, w, lr, balance, 0.25 if p < 0.25 or p >= 0.87 else 0.0)
        step += 1
        tokens += t * len(ids)
        sums += losses
        since += 1
        if step % 20 == 0:
            now = time.time()
            row = dict(step=step,
                       tokens=tokens,
                       p=round(p, 4),
                       loss=round(sums[0] / since, 4),
                       mtp=round(sums[1] / since, 4),
                       norm=round(sums[2] / since, 3),
                       lr=round(lr, 6),
                       t=t,
                       share=share if data.chat is not None else 0,
                       peak=round(peak, 2),
                       rate=round(since * TOKENS / (now - last)),
                       time=round(now - begin),
                       **data.seen)
            print(json.dumps(row), flush=True)
            log.write(json.dumps(row) + '\n')
            log.flush()
            sums[:], since, last = 0, 0, now
        if time.time() - saved > a.every:
            keep()
            saved = time.time()
    keep()
    print('done', step, tokens, flush=True)


if __name__ == '__main__':
    main()
