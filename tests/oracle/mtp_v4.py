# SPDX-License-Identifier: Apache-2.0
"""The MTP layer of DeepSeek-V4, written out in f64: no code shared with the engine or with
transformers, which leaves it.

  h[i]     = all streams [N, D] that the main model's last layer leaves of position i
  x[i, k]  = e_proj enorm(emb(t[i+1])) + h_proj hnorm(h[i, k])
  x        = a block as the main model's: attention over the window, then experts, each between
             reading and writing the streams
  logits   = head norm(sum of streams by the layer's own hc_head)        predicts t[i+2]
"""
import math

import torch

T64 = torch.float64


def rms(x, eps, w=None):
    x = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()
    return x if w is None else x * w


def mixes(c, fn, x):
    """x [T, N, D] as one row of a token: fn times it, over its root mean square."""
    flat = x.flatten(1)
    return flat @ fn.T / (flat.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]).sqrt()


def read(c, g, p, x):
    """A block's input, and by what its output goes into the streams."""
    N, eps = c["hc_mult"], c["hc_eps"]
    m, base, scale = mixes(c, g[p + "_fn"], x), g[p + "_base"], g[p + "_scale"]
    pre = torch.sigmoid(m[:, :N] * scale[0] + base[:N]) + eps
    post = 2 * torch.sigmoid(m[:, N:2 * N] * scale[1] + base[N:2 * N])
    way = (m[:, 2 * N:] * scale[2] + base[2 * N:]).view(-1, N, N).softmax(-1) + eps
    way = way / (way.sum(1, keepdim=True) + eps)
    for _ in range(c["hc_sinkhorn_iters"] - 1):
        way = way / (way.sum(2, keepdim=True) + eps)
        way = way / (way.sum(1, keepdim=True) + eps)
    return torch.einsum("tk,tkd->td", pre, x), post, way


def write(x, post, way, y):
    """way[t, j, k]: from stream j into stream k."""
    return post[..., None] * y[:, None] + torch.einsum("tjk,tjd->tkd", way, x)


def turn(x, theta, n, back=False):
    """The last n values of each head, in pairs, by the position; x [T, H, d]."""
    T, sign = len(x), -1 if back else 1
    ang = torch.arange(T, dtype=T64)[:, None] * torch.tensor(
        [theta ** (-2 * i / n) for i in range(n // 2)], dtype=T64)
    cos, sin = ang.cos()[:, None], sign * ang.sin()[:, None]
    a, b = x[..., -n::2], x[..., x.shape[-1] - n + 1::2]
    out = x.clone()
    out[..., -n::2], out[..., x.shape[-1] - n + 1::2] = a * cos - b * sin, b * cos + a * sin
    return out


def attention(c, g, x):
    T, H, d, n = len(x), c["num_attention_heads"], c["head_dim"], c["qk_rope_head_dim"]
    eps, theta, G = c["rms_norm_eps"], c["rope_theta"], c["o_groups"]
    q = rms(x @ g["attn.wq_a.weight"].T, eps, g["attn.q_norm.weight"]) @ g["attn.wq_b.weight"].T
    q = turn(rms(q.view(T, H, d), eps), theta, n)
    kv = rms(x @ g["attn.wkv.weight"].T, eps, g["attn.kv_norm.weight"])
    kv = turn(kv[:, None], theta, n)[:, 0]
    out = torch.zeros(T, H, d, dtype=T64)
    for t in range(T):
        first = max(0, t - c["sliding_window"] + 1)
        s = q[t] @ kv[first:t + 1].T / math.sqrt(d)
        s = torch.cat([s, g["attn.attn_sink"][:, None]], -1).softmax(-1)[:, :-1]
        out[t] = s @ kv[first:t + 1]
    out = turn(out, theta, n, back=True).reshape(T, G, H * d // G)
    low = g["attn.wo_a.weight"].view(G, c["o_lora_rank"], H * d // G)
    out = torch.stack([out[:, i] @ low[i].T for i in range(G)], 1)
    return out.flatten(1) @ g["attn.wo_b.weight"].T


def unit(c, g, p, x):
    a = (x @ g[p + "w1.weight"].T).clamp(max=c["swiglu_limit"])
    b = (x @ g[p + "w3.weight"].T).clamp(-c["swiglu_limit"], c["swiglu_limit"])
    return (a * torch.sigmoid(a) * b) @ g[p + "w2.weight"].T


def experts(c, g, x):
    out = unit(c, g, "ffn.shared_experts.", x)
    score = torch.log1p((x @ g["ffn.gate.weight"].T).exp()).sqrt()
    for t in range(len(x)):
        by = score[t] + g["ffn.gate.bias"]
        pick = sorted(range(len(by)), key=lambda e: -float(by[e]))[:c["num_experts_per_tok"]]
        total = sum(score[t, e] for e in pick)
        for e in pick:
            k = c["routed_scaling_factor"] * score[t, e] / total
            out[t] = out[t] + k * unit(c, g, f"ffn.experts.{e}.", x[t:t + 1])[0]
    return out


def forward(c, value, ids, streams):
    """ids [T], streams [T, N, D] of the main model -> logits [T-1, V]."""
    g = {n[6:]: t.to(T64) for n, t in value.items() if n.startswith("mtp.0.")}
    eps, N = c["rms_norm_eps"], c["hc_mult"]
    e = rms(value["embed.weight"].to(T64)[torch.tensor(ids[1:])], eps, g["enorm.weight"])
    h = rms(streams[:-1].to(T64), eps, g["hnorm.weight"])
    x = (e @ g["e_proj.weight"].T)[:, None] + h @ g["h_proj.weight"].T
    for p, norm, block in (("hc_attn", "attn_norm", attention), ("hc_ffn", "ffn_norm", experts)):
        y, post, way = read(c, g, p, x)
        x = write(x, post, way, block(c, g, rms(y, eps, g[norm + ".weight"])))
    pre = torch.sigmoid(mixes(c, g["hc_head_fn"], x) * g["hc_head_scale"] + g["hc_head_base"])
    y = torch.einsum("tk,tkd->td", pre[:, :N] + c["hc_eps"], x)
    return (rms(y, eps, g["norm.weight"]) @ value["head.weight"].to(T64).T).float().numpy()
