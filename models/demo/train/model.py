# SPDX-License-Identifier: Apache-2.0
"""The demo model: the DeepSeek-V3 architecture at a small size, written to train fast on a CPU.

MLA with low-rank queries, a dense first layer, then layers of routed experts beside a shared one.
The router scores with a sigmoid, chooses inside the best groups with a bias that only balances
load, and weighs by the raw scores, normalised and scaled. One multi-token-prediction layer. RoPE on
interleaved pairs, RMSNorm, no biases.

Parameters are float32; `dtype` is what matrices are multiplied in (bfloat16 to train, float32 to
evaluate). The router and all norms are computed in float32 always.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = dict(vocab=4096, hidden=256, layers=5, dense_layers=1,
              heads=4, q_lora=96, kv_lora=96, nope=32, rope=32,
              v=64, dense_ffn=640, expert_ffn=128,
              experts=16, used=2, groups=4, groups_used=2, shared=1,
              scaling=1.5, theta=10000.0, eps=1e-6, context=2048)


class FusedCE(torch.autograd.Function):
    """sum of weight * cross entropy of x W^T, with the gradients made in the same pass, 2048 rows
    at a time."""

    @staticmethod
    def forward(ctx, x, w, target, weight):
        loss = torch.zeros((), dtype=torch.float32)
        gx, gw = torch.empty_like(x), torch.zeros(w.shape, dtype=torch.float32)
        for i in range(0, x.shape[0], 2048):
            xs, t, k = x[i:i + 2048], target[i:i + 2048, None], weight[i:i + 2048, None]
            p = (xs @ w.T).float()
            own = p.gather(1, t)
            top = p.amax(1, keepdim=True)
            p.sub_(top).exp_()
            total = p.sum(1, keepdim=True)
            loss += (k * (total.log() + top - own)).sum()
            p.mul_(k / total)
            p.scatter_add_(1, t, -k)
            p = p.to(x.dtype)
            gx[i:i + 2048] = p @ w
            gw += p.T @ xs
        ctx.save_for_backward(gx, gw)
        ctx.wdtype = w.dtype
        return loss

    @staticmethod
    def backward(ctx, g):
        gx, gw = ctx.saved_tensors
        return gx * g.to(gx.dtype), (gw * g).to(ctx.wdtype), None, None


class Experts(torch.autograd.Function):
    """sum over a token's experts of weight * down(silu(gate x) * up x), tokens sorted by expert."""

    @staticmethod
    def forward(ctx, x, index, weight, wgu, wd):
        n, k = index.shape
        order = index.flatten().argsort(stable=True)
        back = torch.empty_like(order)
        back[order] = torch.arange(n * k)
        count = torch.bincount(index.flatten(), minlength=wgu.shape[0]).tolist()
        xs = x[order // k]
        f = wd.shape[2]
        gu = torch.empty(n * k, 2 * f, dtype=x.dtype)
        at = 0
        for e, c in enumerate(count):
            if c:
                torch.mm(xs[at:at + c], wgu[e].T, out=gu[at:at + c])
            at += c
        a = F.silu(gu[:, :f]) * gu[:, f:]
        ys = torch.empty(n * k, x.shape[1], dtype=x.dtype)
        at = 0
        for e, c in enumerate(count):
            if c:
                torch.mm(a[at:at + c], wd[e].T, out=ys[at:at + c])
            at += c
        yu = ys[back].view(n, k, -1)
        out = torch.bmm(weight.to(x.dtype).unsqueeze(1), yu).squeeze(1)
        ctx.save_for_backward(order, back, xs, gu, a, yu, weight, wgu, wd)
        ctx.count = count
        return out

    @staticmethod
    def backward(ctx, dout):
        order, back, xs, gu, a, yu, weight, wgu, wd = ctx.saved_tensors
        n, k, d = yu.shape
        f = wd.shape[2]
        dweight = torch.bmm(yu, dout.unsqueeze(2)).squeeze(2).to(weight.dtype)
        dys = dout[order // k] * weight.flatten()[order].unsqueeze(1).to(dout.dtype)
        da, dxs = torch.empty_like(a), torch.empty_like(xs)
        dwgu, dwd = torch.zeros_like(wgu), torch.zeros_like(wd)
        at = 0
        for e, c in enumerate(ctx.count):
            if c:
                s = slice(at, at + c)
                torch.mm(dys[s], wd[e], out=da[s])
                torch.mm(dys[s].T, a[s], out=dwd[e])
            at += c
        g, u = gu[:, :f], gu[:, f:]
        sg = torch.sigmoid(g)
        sl = g * sg
        dgu = torch.cat([da * u * (sg + sl - sl * sg), da * sl], 1)
        at = 0
        for e, c in enumerate(ctx.count):
            if c:
                s = slice(at, at + c)
                torch.mm(dgu[s], wgu[e], out=dxs[s])
                torch.mm(dgu[s].T, xs[s], out=dwgu[e])
            at += c
        dx = dxs[back].view(n, k, d).sum(1)
        return dx, None, dweight, dwgu, dwd


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps)


def matrix(rows, cols, std=None):
    return nn.Parameter(torch.randn(rows, cols) * (std or 1.0 / math.sqrt(cols) * 0.6))


def lin(x, w):
    """x w^T in x's type."""
    return F.linear(x, w.to(x.dtype))


def rotate(x, cos, sin):
    """RoPE on the interleaved pairs of the last dimension; x [..., T, heads, d], cos and sin [T, 1,
    d/2]."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, c, scale):
        super().__init__()
        self.c = c
        h, qk = c['heads'], c['nope'] + c['rope']
        self.q_a = matrix(c['q_lora'], c['hidden'])
        self.q_a_norm = Norm(c['q_lora'], c['eps'])
        self.q_b = matrix(h * qk, c['q_lora'])
        self.kv_a = matrix(c['kv_lora'] + c['rope'], c['hidden'])
        self.kv_a_norm = Norm(c['kv_lora'], c['eps'])
        self.kv_b = matrix(h * (c['nope'] + c['v']), c['kv_lora'])
        self.o = matrix(c['hidden'], h * c['v'], scale)

    def forward(self, x, cos, sin, cache=None):
        c = self.c
        b, t, _ = x.shape
        h, nope, rope, v = c['heads'], c['nope'], c['rope'], c['v']
        q = lin(self.q_a_norm(lin(x, self.q_a)).to(x.dtype), self.q_b).view(b, t, h, nope + rope)
        kv, kr = lin(x, self.kv_a).split([c['kv_lora'], rope], -1)
        kv = lin(self.kv_a_norm(kv).to(x.dtype), self.kv_b).view(b, t, h, nope + v)
        q = torch.cat((q[..., :nope], rotate(q[..., nope:], cos, sin)), -1)
        kr = rotate(kr.unsqueeze(2), cos, sin).expand(b, t, h, rope)
        k = torch.cat((kv[..., :nope], kr), -1)
        k, val = k.transpose(1, 2), kv[..., nope:].transpose(1, 2)
        if cache is not None:
            k, val = torch.cat([cache[0], k],
                               2) if cache else k, torch.cat([cache[1], val], 2) if cache else val
            cache[:] = [k, val]
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k, val, is_causal=t > 1)
        return lin(y.transpose(1, 2).reshape(b, t, h * v), self.o)


class Dense(nn.Module):
    def __init__(self, c, ffn, scale):
        super().__init__()
        self.gate, self.up = matrix(ffn, c['hidden']), matrix(ffn, c['hidden'])
        self.down = matrix(c['hidden'], ffn, scale)

    def forward(self, x):
        return lin(F.silu(lin(x, self.gate)) * lin(x, self.up), self.down)


class MoE(nn.Module):
    def __init__(self, c, scale):
        super().__init__()
        self.c = c
        e, f, d = c['experts'], c['expert_ffn'], c['hidden']
        self.router = matrix(e, d, 0.02)
        self.register_buffer('bias', torch.zeros(e))
        self.gu = nn.Parameter(torch.randn(e, 2 * f, d) * (0.6 / math.sqrt(d)))
        self.down = nn.Parameter(torch.randn(e, d, f) * scale)
        self.shared = Dense(c, f * c['shared'], scale)
        self.load = torch.zeros(e)

    def route(self, x):
        """Chosen experts [N, used] and their weights, from the normed float32 input [N, hidden]."""
        c = self.c
        s = torch.sigmoid(x @ self.router.T)
        with torch.no_grad():
            choice = s + self.bias
            g = choice.view(-1, c['groups'], c['experts'] // c['groups'])
            best = g.topk(2, -1)[0].sum(-1).topk(c['groups_used'], -1)[1]
            keep = torch.zeros(g.shape[:2]).scatter_(1, best, 1.0).unsqueeze(-1)
            index = g.masked_fill(keep == 0, float('-inf')).flatten(1).topk(c['used'], -1)[1]
        w = s.gather(1, index)
        return index, w / (w.sum(-1, keepdim=True) + 1e-20) * c['scaling']

    def forward(self, x, xf):
        b, t, d = x.shape
        index, w = self.route(xf.view(-1, d))
        if self.training:
            self.load += torch.bincount(index.flatten(), minlength=self.c['experts'])
        y = Experts.apply(x.view(-1, d), index, w, self.gu.to(x.dtype), self.down.to(x.dtype))
        return y.view(b, t, d) + self.shared(x)


class Block(nn.Module):
    def __init__(self, c, dense):
        super().__init__()
        scale = 0.6 / math.sqrt(c['hidden'] * 2 * c['layers'])
        self.attn_norm, self.ffn_norm = Norm(c['hidden'], c['eps']), Norm(c['hidden'], c['eps'])
        self.attn = Attention(c, scale)
        self.dense = dense
        self.ffn = Dense(c, c['dense_ffn'], scale) if dense else MoE(c, scale)

    def forward(self, x, cos, sin, dtype, cache=None):
        x = x + self.attn(self.attn_norm(x).to(dtype), cos, sin, cache)
        h = self.ffn_norm(x)
        return x + (self.ffn(h.to(dtype)) if self.dense else self.ffn(h.to(dtype), h))


class Model(nn.Module):
    """ids [B, T] -> hidden states after the final norm, float32. `head` is [vocab, hidden]."""

    def __init__(self, c=CONFIG):
        super().__init__()
        self.c = c
        d = c['hidden']
        self.embed, self.head = matrix(c['vocab'], d, 0.5), matrix(c['vocab'], d, 0.02)
        self.blocks = nn.ModuleList(Block(c, i < c['dense_layers']) for i in range(c['layers']))
        self.norm = Norm(d, c['eps'])
        self.enorm, self.hnorm = Norm(d, c['eps']), Norm(d, c['eps'])
        self.eh_proj = matrix(d, 2 * d)
        self.mtp = Block(c, False)
        self.mtp_norm = Norm(d, c['eps'])
        self.dtype = torch.bfloat16

    def tables(self, t, start=0):
        c = self.c
        f = c['theta'] ** (-torch.arange(0, c['rope'], 2, dtype=torch.float64) / c['rope'])
        a = (torch.arange(start, start + t, dtype=torch.float64)[:, None] * f).unsqueeze(1)
        return a.cos().to(self.dtype), a.sin().to(self.dtype)

    def forward(self, ids, cache=None):
        """`cache`, to generate: an empty dict first, then the same one with one new token a
        call."""
        start = cache.get('n', 0) if cache is not None else 0
        cos, sin = self.tables(ids.shape[1], start)
        x = F.embedding(ids, self.embed)
        for i, b in enumerate(self.blocks):
            x = b(x, cos, sin, self.dtype, cache.setdefault(i, []) if cache is not None else None)
        if cache is not None:
            cache['n'] = start + ids.shape[1]
        return self.norm(x)

    def draft(self, h, following):
        """MTP hidden states after its own norm: h [B, T, hidden] from forward (or from here),
        `following` [B, T] the token after each position; what comes out predicts the token after
        that one."""
        cos, sin = self.tables(h.shape[1])
        e = self.enorm(F.embedding(following, self.embed))
        x = lin(torch.cat((e, self.hnorm(h)), -1).to(self.dtype), self.eh_proj).float()
        return self.mtp_norm(self.mtp(x, cos, sin, self.dtype))

    def loss(self, x, target, weight):
        """Sum of weight times cross entropy of hidden states against targets."""
        keep = weight.reshape(-1).nonzero()[:, 0]
        return FusedCE.apply(x.reshape(-1, x.shape[-1])[keep].to(self.dtype),
                             self.head.to(self.dtype),
                             target.reshape(-1)[keep], weight.reshape(-1)[keep])

    @torch.no_grad()
    def generate(self, ids, limit, stop):
        """Greedy continuation of a list of ids, at most `limit` tokens, up to and with the id
        `stop`."""
        cache, out, feed = {}, [], torch.tensor([ids])
        while len(out) < limit and (not out or out[-1] != stop):
            out.append(self.logits(self(feed, cache)[0, -1:]).argmax().item())
            feed = torch.tensor([[out[-1]]])
        return out

    def logits(self, x):
        return lin(x.to(self.dtype), self.head).float()


def round_bf16(model):
    """Round every matrix to bfloat16, as the exported file holds them (norms, router and its bias
    stay float32)."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() >= 2 and not name.endswith('router'):
                p.copy_(p.to(torch.bfloat16).float())
    return model
