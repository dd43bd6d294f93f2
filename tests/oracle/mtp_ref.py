# SPDX-License-Identifier: Apache-2.0
"""The MTP layers of DeepSeek-V3, V3.2, GLM-4.5, GLM-5.3, Qwen3-Next and Ling-3.0, written out: no
code shared with the engine or with transformers. That of DeepSeek-V4 is in mtp_v4.py.

  h'[i]    = eh_proj [ enorm(emb(t[i+1])) ; hnorm(h[i]) ]
             with h = hidden after the main model's final norm
  x        = h' + attention(norm(h')); x = x + experts(norm(x))
  out[i]   = shared_head.norm(x[i]);  logits[i] = shared_head.head out[i]   predicts t[i+2]

Qwen's eh_proj is called fc, weights of its norms are stored less 1, and of its attention each
head's output is multiplied by sigmoid of a gate that comes out of q_proj after the head's query.
"""
import math

import torch

import index_ref
import mtp_v4


def rms(x, w, eps):
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * w


def yarn(c):
    """(frequencies of the pairs, factor on the softmax scale)"""
    d, rp = c["qk_rope_head_dim"], c.get("rope_scaling")
    if not d:  # nothing is rotated
        return torch.zeros(0, dtype=torch.float64), 1
    base = c["rope_theta"] if "rope_theta" in c else c["rope_parameters"]["rope_theta"]
    f = torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    if rp is None:
        return f, 1
    s, old = rp["factor"], rp["original_max_position_embeddings"]

    def dim(rot):
        return d * math.log(old / (rot * 2 * math.pi)) / (2 * math.log(base))
    lo, hi = max(math.floor(dim(rp["beta_fast"])), 0), min(math.ceil(dim(rp["beta_slow"])), d - 1)
    ramp = ((torch.arange(d // 2, dtype=torch.float64) - lo) / max(hi - lo, 0.001)).clamp(0, 1)
    assert rp["mscale"] == rp["mscale_all_dim"]
    return f / s * ramp + f * (1 - ramp), (0.1 * rp["mscale_all_dim"] * math.log(s) + 1) ** 2


def angles(c, n):
    """[n, rope / 2]"""
    return torch.arange(n, dtype=torch.float64)[:, None] * yarn(c)[0]


def rotate(x, ang):
    """x [T, h, d]: pairs (0,1), (2,3), ..."""
    cos, sin = ang.cos()[:, None], ang.sin()[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def gqa(c, w, x):
    """GLM-4.5: the first half of each head is rotated, in halves; norms of heads where they are."""
    h, kv, d, T = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], len(x)
    n = d // 2
    ang = torch.arange(T, dtype=torch.float64)[:, None] * c["rope_theta"] ** (
        -torch.arange(0, n, 2, dtype=torch.float64) / n)
    cos, sin = ang.cos()[:, None], ang.sin()[:, None]

    def heads(name, norm, n_head):
        y = (x @ w[name].T + w[name + ".bias"]).view(T, n_head, d)
        if norm is None:
            return y
        if norm in w:
            y = rms(y, w[norm], c["rms_norm_eps"])
        a, b = y[..., :n // 2], y[..., n // 2:n]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, y[..., n:]], -1)
    q, k = heads("q_proj", "q_norm", h), heads("k_proj", "k_norm", kv)
    v = heads("v_proj", None, kv).repeat_interleave(h // kv, 1)
    s = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(h // kv, 1)) / math.sqrt(d)
    s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)
    return torch.einsum("hij,jhd->ihd", s, v).reshape(T, h * d) @ w["o_proj"].T


def attention(c, w, x):
    if "kv_lora_rank" not in c:
        return gqa(c, w, x)
    h, nope, v = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"]
    rope, r, T = c["qk_rope_head_dim"], c["kv_lora_rank"], len(x)
    mul, ang = yarn(c)[1], angles(c, T)
    eps = c["rms_norm_eps"] if "index_kpool" in c else 1e-6
    latent = rms(x @ w["q_a_proj"].T, w["q_a_layernorm"], eps)
    q = (latent @ w["q_b_proj"].T).view(T, h, nope + rope)
    kv = x @ w["kv_a_proj_with_mqa"].T
    lat = rms(kv[:, :r], w["kv_a_layernorm"], eps) @ w["kv_b_proj"].T
    lat = lat.view(T, h, nope + v)
    key_r = rotate(kv[:, None, r:], ang)
    s = torch.einsum("ihd,jhd->hij", q[..., :nope], lat[..., :nope])
    s = s + torch.einsum("ihd,jd->hij", rotate(q[..., nope:], ang), key_r[:, 0])
    s = s * (mul / math.sqrt(nope + rope))
    if "index_topk" in c:
        own = {n.removeprefix("indexer."): t for n, t in w.items() if n.startswith("indexer.")}
        best = index_ref.scores(c, own, x, latent, ang)
        assert index_ref.gap(c, best) > index_ref.GAP
        s = s.masked_fill(~index_ref.chosen(c, best), -math.inf)
    s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).softmax(-1)
    y = torch.einsum("hij,jhd->ihd", s, lat[..., nope:])
    if "g_proj" in w:  # of Ling
        y = y * torch.sigmoid(x @ w["g_proj"].T)[..., None]
    return y.reshape(T, h * v) @ w["o_proj"].T


def mlp(w, p, x, limit=math.inf):
    g, u = (x @ w[p + "gate_proj"].T).clamp(max=limit), x @ w[p + "up_proj"].T
    return (g * torch.sigmoid(g) * u.clamp(-limit, limit)) @ w[p + "down_proj"].T


def experts(c, w, x):
    limit = c["swiglu_limit"] if "index_kpool" in c else math.inf
    out = mlp(w, "shared_experts.", x, limit)
    E, G = c["n_routed_experts"], c["n_group"]
    for t in range(len(x)):
        s = torch.sigmoid(w["gate"] @ x[t])
        b = (s + w["bias"]).tolist()
        size = E // G
        rank = sorted(range(G), key=lambda g: -sum(sorted(b[g * size:(g + 1) * size])[-2:]))
        ok = [e for g in rank[:c["topk_group"]] for e in range(g * size, (g + 1) * size)]
        pick = sorted(ok, key=lambda e: -b[e])[:c["num_experts_per_tok"]]
        total = sum(s[e] for e in pick)
        for e in pick:
            k = c["routed_scaling_factor"] * s[e] / (total if c["norm_topk_prob"] else 1)
            out[t] = out[t] + k * mlp(w, f"experts.{e}.", x[t:t + 1], limit)[0]
    return out


def turn(x, n, theta):
    """x [T, h, d]: the first n values of each head are rotated, i with i + n / 2."""
    T, half = len(x), n // 2
    ang = torch.tensor([[t * theta ** (-2 * i / n) for i in range(half)] for t in range(T)],
                       dtype=torch.float64)
    cos, sin = ang.cos()[:, None], ang.sin()[:, None]
    out = x.clone()
    out[..., :half] = x[..., :half] * cos - x[..., half:n] * sin
    out[..., half:n] = x[..., half:n] * cos + x[..., :half] * sin
    return out


def gated_attention(c, w, x):
    h, kv, d, T = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], len(x)
    rope, eps = c.get("rope_parameters") or {}, c["rms_norm_eps"]
    part = rope.get("partial_rotary_factor", c.get("partial_rotary_factor"))
    n, theta = int(d * part), rope.get("rope_theta", c.get("rope_theta"))
    q = (x @ w["q_proj"].T).view(T, h, 2 * d)
    gate = torch.sigmoid(q[..., d:])
    q = turn(rms(q[..., :d], 1 + w["q_norm"], eps), n, theta)
    k = turn(rms((x @ w["k_proj"].T).view(T, kv, d), 1 + w["k_norm"], eps), n, theta)
    v = (x @ w["v_proj"].T).view(T, kv, d)
    out = torch.zeros(T, h, d, dtype=torch.float64)
    for t in range(T):
        for i in range(h):
            j = i // (h // kv)
            p = (k[:t + 1, j] @ q[t, i] / math.sqrt(d)).softmax(0)
            out[t, i] = p @ v[:t + 1, j]
    return (out * gate).reshape(T, h * d) @ w["o_proj"].T


def shared_and_routed(c, w, x):
    """Softmax over all experts, the best of them, whose weights are made 1 together; one more,
    which every token has, weighed by a sigmoid."""
    out = torch.sigmoid(x @ w["shared_expert_gate"].T) * mlp(w, "shared_expert.", x)
    for t in range(len(x)):
        p = (w["gate"] @ x[t]).softmax(0)
        pick = sorted(range(len(p)), key=lambda e: -float(p[e]))[:c["num_experts_per_tok"]]
        total = sum(float(p[e]) for e in pick)
        for e in pick:
            out[t] = out[t] + float(p[e]) / total * mlp(w, f"experts.{e}.", x[t:t + 1])[0]
    return out


def qwen(c, value, ids, hidden):
    """As forward, of Qwen's names."""
    g = {n[4:].removesuffix(".weight"): t.double() for n, t in value.items()
         if n.startswith("mtp.")}
    at = {n.split("self_attn.")[1]: t for n, t in g.items() if "self_attn." in n}
    ml = {n.split(".mlp.")[1]: t for n, t in g.items() if ".mlp." in n}
    eps, embed = c["rms_norm_eps"], value["model.embed_tokens.weight"].double()
    head = value["lm_head.weight"].double() if "lm_head.weight" in value else embed
    e = rms(embed[torch.tensor(ids[1:])], 1 + g["pre_fc_norm_embedding"], eps)
    x = torch.cat([e, rms(hidden[:-1].double(), 1 + g["pre_fc_norm_hidden"], eps)], -1)
    x = x @ g["fc"].T
    x = x + gated_attention(c, at, rms(x, 1 + g["layers.0.input_layernorm"], eps))
    y = rms(x, 1 + g["layers.0.post_attention_layernorm"], eps)
    x = x + (shared_and_routed(c, ml, y) if "gate" in ml else mlp(ml, "", y))
    return (rms(x, 1 + g["norm"], eps) @ head.T).float().numpy()


def forward(c, value, layer, ids, hidden):
    """ids [T], hidden [T, D], of DeepSeek-V4 its streams -> logits [T-1, V], in f64. Without an
    embedding or a head of its own the layer uses the main model's."""
    if "mtp.fc.weight" in value:
        return qwen(c, value, ids, hidden)
    if "mtp.0.e_proj.weight" in value:
        return mtp_v4.forward(c, value, ids, hidden)
    p = f"model.layers.{layer}."
    g = {n[len(p):]: t.double() for n, t in value.items() if n.startswith(p)}
    at = {n[10:].removesuffix(".weight"): t for n, t in g.items() if n.startswith("self_attn.")}
    ml = {n[4:].removesuffix(".weight"): t for n, t in g.items() if n.startswith("mlp.")}
    ml["bias"] = ml.pop("gate.e_score_correction_bias")
    eps = c["rms_norm_eps"]
    embed, head = (g[own] if own in g else value[main].double() for own, main in
                   (("embed_tokens.weight", "model.embed_tokens.weight"),
                    ("shared_head.head.weight", "lm_head.weight")))
    e = rms(embed[torch.tensor(ids[1:])], g["enorm.weight"], eps)
    x = torch.cat([e, rms(hidden[:-1].double(), g["hnorm.weight"], eps)], -1)
    x = x @ g["eh_proj.weight"].T
    x = x + attention(c, at, rms(x, g["input_layernorm.weight"], eps))
    x = x + experts(c, ml, rms(x, g["post_attention_layernorm.weight"], eps))
    x = rms(x, g["shared_head.norm.weight"], eps)
    return (x @ head.T).float().numpy()
