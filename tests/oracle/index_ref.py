# SPDX-License-Identifier: Apache-2.0
"""The lightning indexers of DeepSeek-V3.2, GLM-5 and GLM-5.3, and of MiniMax-M3, written out in
f64: no code shared with the engine or with transformers.

  score[t, s] = sum over heads h of (W x[t])_h max(0, q[t, h] . k[s]),  s <= t
                with q = W_q latent[t], k[s] = LayerNorm(W_k x[s]), the first values of both rotated
  a token sees the index_topk positions with the best scores, the lower one where they are equal

The factors of the heads' number and width are left out: they change no order.

GLM-5.3's key is one of a pool w of index_kpool positions, of which nothing is rotated:

  k[w] = sum over its positions s of softmax_s(W_z x[s] + ape[s mod index_kpool]) k[s]
  a token sees the index_topk / index_kpool whole pools with the best scores, and what is after the
  last whole one

MiniMax-M3's heads choose blocks, each for itself:

  score[h, t, b] = max over the positions s <= t of block b of q[t, h] . k[s]
                   with q = rms(W_q x[t]), k[s] = rms(W_k x[s]), the first values of both rotated
  a token sees the last blocks up to its own, and of the others those with the best scores
"""
import math

import torch

GAP = 1e-6  # what is between the last that is seen and the first that is not, of the row's largest


def rotate(c, x, ang):
    """x [T, h, d]: of the first values, the halves (DeepSeek) or the neighbours (GLM)."""
    n = c["qk_rope_head_dim"]
    if not n:
        return x
    pairs = c.get("indexer_rope_interleave", c["model_type"] == "glm_moe_dsa")
    cos, sin = ang.cos()[:, None], ang.sin()[:, None]
    a, b = (x[..., 0:n:2], x[..., 1:n:2]) if pairs else (x[..., :n // 2], x[..., n // 2:n])
    a, b = a * cos - b * sin, b * cos + a * sin
    r = torch.stack([a, b], -1).flatten(-2) if pairs else torch.cat([a, b], -1)
    return torch.cat([r, x[..., n:]], -1)


def scores(c, w, x, latent, ang):
    """w: the indexer's tensors; x [T, D], latent [T, q_lora_rank], ang [T, rope / 2] -> [T, T]"""
    T, n, d = len(x), c["index_n_heads"], c["index_head_dim"]
    q = rotate(c, (latent @ w["wq_b"].T).view(T, n, d), ang)
    k = x @ w["wk"].T
    k = k - k.mean(-1, keepdim=True)
    k = k / (k.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * w["k_norm"] + w["k_norm.bias"]
    k = rotate(c, k[:, None], ang)[:, 0]
    P = c.get("index_kpool", 1)
    if "index_kpool" in c:
        z = x @ w["index_kpool_compress_gate"].T
        k, z = (a[:T // P * P].view(T // P, P, d) for a in (k, z))
        k = ((z + w["index_kpool_compress_ape"]).softmax(1) * k).sum(1)
    s = torch.einsum("ihd,jd->hij", q, k).clamp(min=0)
    s = torch.einsum("ih,hij->ij", x @ w["weights_proj"].T, s)
    whole = torch.arange(1, T + 1)[:, None] // P
    return s.masked_fill(torch.arange(T // P)[None] >= whole, -math.inf)


def chosen(c, s):
    """[T, T]: which positions each token sees."""
    if "index_kpool" in c:
        return pools_chosen(c, s)
    k = min(c["index_topk"], len(s))
    at = s.sort(dim=-1, descending=True, stable=True).indices[:, :k]
    return torch.zeros_like(s, dtype=torch.bool).scatter(1, at, True) & (s > -math.inf)


def pools_chosen(c, s):
    """The same of pools s [T, w]."""
    T, P = len(s), c["index_kpool"]
    out = torch.zeros(T, T, dtype=torch.bool)
    for t in range(T):
        n = (t + 1) // P
        best = sorted(range(n), key=lambda w: (-float(s[t, w]), w))[:c["index_topk"] // P]
        for w in best:
            out[t, w * P:w * P + P] = True
        out[t, n * P:t + 1] = True
    return out


def pools_gap(c, s):
    P, k, least = c["index_kpool"], c["index_topk"] // c["index_kpool"], math.inf
    for t in range(len(s)):
        n = (t + 1) // P
        if n > k:
            v = s[t, :n].sort(descending=True).values
            least = min(least, float((v[k - 1] - v[k]) / v.abs().max()))
    return least


def gap(c, s):
    """The least of all rows, of the row's largest score."""
    k = c["index_topk"]
    if "index_kpool" in c:
        return pools_gap(c, s)
    if len(s) <= k:
        return math.inf
    v = s[k:].sort(-1, descending=True).values
    return float(((v[:, k - 1] - v[:, k]) / s[k:].tril(k).abs().nan_to_num(0, 0, 0).amax(-1)).min())


class Watch:
    """Holds what transformers' indexers chose against this file, and the gaps against GAP."""

    def __init__(self, name, c, value, angles):
        self.name, self.c, self.value, self.angles, self.least = name, c, value, angles, math.inf

    def __call__(self, model):
        for i, layer in enumerate(model.model.layers):
            if getattr(layer.self_attn, "indexer", None) is not None:
                layer.self_attn.indexer.register_forward_hook(
                    lambda m, a, kw, out, i=i: self.see(
                        i, a or (kw["hidden_states"], kw["q_resid"]), out), with_kwargs=True)

    def see(self, layer, args, out):
        p = f"model.layers.{layer}.self_attn.indexer."
        w = {n[len(p):].removesuffix(".weight"): t.double() for n, t in self.value.items()
             if n.startswith(p)}
        x, latent = args[0][0].double(), args[1][0].double()
        s = scores(self.c, w, x, latent, self.angles(len(x)))
        T = len(x)
        at = out[0].long()
        theirs = torch.zeros(T, T + 1, dtype=torch.bool).scatter(1, at.where(at >= 0, T), True)
        theirs = theirs[:, :T] & torch.ones(T, T).tril().bool()
        least = gap(self.c, s)
        assert least > GAP, f"{self.name}: layer {layer}: {least:.1e} between positions"
        assert torch.equal(theirs, chosen(self.c, s)), (self.name, layer)
        self.least = min(self.least, least)


class WatchBlocks(Watch):
    """The same of blocks; size: (heads, width, positions of a block, blocks, the last ones)."""

    def __init__(self, name, c, value, size):
        super().__init__(name, c, value, None)
        self.size = size

    def rotated(self, x, w):
        """x [T, h, d]: normed, the first values rotated in halves."""
        c = self.c
        n = c["rotary_dim"]
        rp = c.get("rope_parameters") or c
        x = x / (x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]).sqrt() * (1 + w)
        f = rp["rope_theta"] ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
        ang = torch.arange(len(x), dtype=torch.float64)[:, None] * f
        cos, sin = ang.cos()[:, None], ang.sin()[:, None]
        a, b = x[..., :n // 2], x[..., n // 2:n]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., n:]], -1)

    def see(self, layer, args, out):
        p = f"model.layers.{layer}.self_attn.index_"
        w = {n[len(p):].removesuffix(".weight"): t.double() for n, t in self.value.items()
             if n.startswith(p)}
        x = args[0][0].double()
        n, d, blk, top, local = self.size
        T = len(x)
        q = self.rotated((x @ w["q_proj"].T).view(T, n, d), w["q_norm"])
        k = self.rotated((x @ w["k_proj"].T).view(T, 1, d), w["k_norm"])[:, 0]
        s = torch.einsum("ihd,jd->hij", q, k)
        s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        n_blk = (T + blk - 1) // blk
        s = torch.nn.functional.pad(s, (0, n_blk * blk - T), value=-math.inf)
        s = s.view(n, T, n_blk, blk).amax(-1)
        for h in range(n):
            for t in range(T):
                row, last = s[h, t], t // blk
                ours = set(range(max(0, last + 1 - local), last + 1))
                best = sorted((b for b in range(last + 1) if b not in ours),
                              key=lambda b: (-row[b], b))
                take = best[:top - len(ours)]
                if len(best) > len(take):
                    least = float(row[take[-1]] - row[best[len(take)]]) / float(
                        row[:last + 1].abs().max())
                    assert least > GAP, f"{self.name}: layer {layer}: {least:.1e} between blocks"
                    self.least = min(self.least, least)
                theirs = {int(b) for b in out[0, h, t] if b >= 0}
                assert theirs == ours | set(take), (self.name, layer, h, t)
