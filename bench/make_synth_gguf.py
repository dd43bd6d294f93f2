#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make synthetic MoE GGUF models (random weights, valid blocks, minimal byte-level gpt2 vocab) for
speed tests.

  make_synth_gguf.py MODEL TYPE OUT.gguf [--layers N] [--experts N] [--mtp]

MODEL  dsv2lite : DeepSeek-V2-Lite shape. 27 layers (both engines switch to the 'lite' no-q-lora
form only on 26/27
                  layers), hidden 2048, 16 heads, MLA kv_lora 512, nope 128, rope 64, v 128, first
                  layer dense 10944, 64 experts top-6 + 2 shared, moe ffn 1408, vocab 102400.  MLA
                  tensors in mainline's split form (attn_k_b / attn_v_b, head_count_kv 1), which
                  ik_llama.cpp also loads.
       dsv3     : DeepSeek-V3's proportions at a width of 2048: 6 layers, the first dense, and an
       MTP layer; 256 experts in
                  8 groups, top-8 + 1 shared, sigmoid, moe ffn 768, 32 heads, q_lora 768, kv_lora
                  512; vocab 32000: experts are 39 % of what a token reads (of V3's 56 %).
       dsv32    : the same with the indexers of DeepSeek-V3.2: 16 heads of 128, of which a token
       sees 2048 positions.
       dsv4     : DeepSeek-V4-Flash's proportions at a width of 2048: 6 layers, the first with a
       window alone and experts by the id, then entries of 4 and 128 tokens in turn; 4 streams, 32
       heads of 512 in 8 groups, an indexer of 32 heads of 128, of which a token sees 512 entries;
                  64 experts top-6 + 1 shared, moe ffn 768; vocab 32000. --mtp: and an MTP layer.
       qwen3moe : Qwen3-30B-A3B shape, 12 of 48 layers by default, hidden 2048, 32 heads / 4 kv,
       head_dim 128,
                  128 experts top-8, moe ffn 768, vocab 151936.
       qwen35moe: Qwen3.5-35B-A3B shape, 8 of 40 layers by default, three of four of them gated
       DeltaNet, hidden 2048,
                  16 heads / 2 kv of 256 with gates, 256 experts top-8 + 1 shared, moe ffn 512,
                  vocab 248320. --mtp: and an MTP layer.
TYPE   f16 q4_0 q8_0 q4_k_m iq4_nl iq4_xs mxfp4 nvfp4
Quantised tensors are written directly as random valid blocks (random quants, sane scales): nothing
to quantise afterwards, speed does not depend on the values.  Prints the weight bytes that one
decoded token reads.
"""
import sys, argparse
import numpy as np
import gguf
from gguf import GGMLQuantizationType as Q

ap = argparse.ArgumentParser()
ap.add_argument('model'); ap.add_argument('type'); ap.add_argument('out')
ap.add_argument('--layers', type=int, default=0); ap.add_argument('--experts', type=int, default=0)
ap.add_argument('--mtp', action='store_true', help='qwen35moe, dsv4: an MTP layer too')
ap.add_argument('--dry', action='store_true', help='only print the bytes')
a = ap.parse_args()
rng = np.random.default_rng(1234)
POOL = 48 << 20

SZ = dict(
    (k, gguf.GGML_QUANT_SIZES[k])
    for k in (Q.F16, Q.Q4_0, Q.Q8_0, Q.Q4_K, Q.Q5_0, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS, Q.MXFP4, Q.NVFP4))
pools = {}
def pool(q):
    """a pool of random valid blocks of type q with weight std about 0.02"""
    if q in pools: return pools[q]
    bs, nb = SZ[q]
    n = POOL // nb
    if q == Q.F16:
        p = (rng.standard_normal(POOL // 2, dtype=np.float32) * 0.02).astype(np.float16).view(
            np.uint8).reshape(-1, 2)
    else:
        p = rng.integers(0, 256, size=(n, nb), dtype=np.uint8)
        def put16(off, std_q, jitter=0.3):
            # Scales of both signs: codes have a mean, which would make all tokens alike, and then
            # they choose the same experts
            d = (0.02 / std_q * (1 + jitter * (rng.random(n) - 0.5)) * rng.choice(
                (-1, 1), n)).astype(np.float16)
            p[:, off:off + 2] = d.view(np.uint8).reshape(n, 2)
        if q == Q.Q4_0: put16(0, 4.6)
        elif q == Q.Q8_0: put16(0, 74.0)
        elif q == Q.Q5_0: put16(0, 9.2)
        elif q == Q.IQ4_NL: put16(0, 70.0)
        elif q == Q.Q4_K: put16(0, 4.6 * 32); put16(2, 4.6 * 32 / 7.5)
        elif q == Q.Q6_K: put16(208, 18.5 * 74)
        elif q == Q.IQ4_XS: put16(0, 70.0 * 16)
        elif q == Q.MXFP4: p[:, 0] = 127 - 7 + rng.integers(0, 2, n)          # e8m0
        elif q == Q.NVFP4:
            p[:, 0:4] = 8 + rng.integers(0, 16, (n, 4))  # ue4m3 about 0.01..0.06
    pools[q] = p
    return p

cursors = {}
def raw(shape, q):
    """shape in numpy order (last = contiguous)"""
    bs, nb = SZ[q]
    nel = int(np.prod(shape)); assert shape[-1] % bs == 0, (shape, q)
    p = pool(q); need = nel // bs; cursor = cursors.get(q, 0)
    out = np.empty((need, nb), np.uint8); i = 0
    while i < need:
        k = min(need - i, len(p) - cursor)
        out[i:i + k] = p[cursor:cursor + k]; i += k; cursor = (cursor + k + 977) % len(p)
    cursors[q] = cursor
    return out.reshape(shape[:-1] + (shape[-1] // bs * nb,))

def as_bf16(x):
    """to the nearest bf16, in f32"""
    u = x.view(np.uint32)
    return ((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)

T = a.type.lower()
base = dict(f16=Q.F16,
            q4_0=Q.Q4_0,
            q8_0=Q.Q8_0,
            q4_k_m=Q.Q4_K,
            iq4_nl=Q.IQ4_NL,
            iq4_xs=Q.IQ4_XS,
            mxfp4=Q.MXFP4,
            nvfp4=Q.NVFP4)[T]
def ttype(name, cols, il=0, nl=1):
    q = base
    more = il < nl // 8 or il >= 7 * nl // 8 or (il - nl // 8) % 3 == 2
    if name == 'output': q = Q.Q6_K if T not in ('f16', 'q8_0') else base
    elif name == 'token_embd' and T in ('mxfp4', 'nvfp4'): q = Q.Q8_0
    elif T in ('mxfp4', 'nvfp4') and name.startswith('attn_k_b'): q = Q.Q8_0
    elif T == 'q4_k_m' and more and ('ffn_down' in name or 'attn_v' in name): q = Q.Q6_K
    bs = SZ[q][0]
    if cols % bs:  # llama-quantize's fallbacks
        q = {Q.Q4_K: Q.Q5_0, Q.Q6_K: Q.Q8_0, Q.IQ4_XS: Q.IQ4_NL, Q.NVFP4: Q.Q8_0}[q]
    return q

class W:
    def __init__(s, arch): s.w = gguf.GGUFWriter(a.out, arch); s.pend = []; s.act = {}
    def t(s, name, shape, frac=1.0, f32=False, il=0, nl=1, one=0):
        short = name.split('.')[2] if name.startswith('blk.') else name.split('.')[0]
        q = None if f32 else ttype(short, shape[-1], il, nl)
        nby = int(np.prod(shape)) * 4 if f32 else int(np.prod(shape)) // SZ[q][0] * SZ[q][1]
        s.pend.append((name, shape, q, one))
        s.act[short] = s.act.get(short, 0) + nby * frac
        s.tot = getattr(s, 'tot', 0) + nby
    def ids(s, name, shape, n):
        """Numbers below n, of which those of a row differ."""
        s.pend.append((name, shape, 'ids', n))
    def write(s):
        tot = sum(s.act.values())
        print(
            f'file weights {s.tot/1e9:.3f} GB; active weight bytes per decoded token {tot/1e6:.1f} '
            'MB'
        )
        for k, v in sorted(s.act.items(), key=lambda x: -x[1]): print(f'   {k:18s} {v/1e6:9.2f} MB')
        if a.dry: return
        w = s.w
        for name, shape, q, one in s.pend:
            if q is None or q == 'ids':
                kind = np.dtype(np.float32 if q is None else np.int32)
                w.add_tensor_info(name, shape, kind, int(np.prod(shape)) * 4)
            else:
                bs, nb = SZ[q]; bshape = shape[:-1] + (shape[-1] // bs * nb,)
                if q == Q.F16:
                    w.add_tensor_info(name, shape, np.dtype(np.float16), int(np.prod(shape)) * 2)
                else:
                    w.add_tensor_info(name,
                                      bshape,
                                      np.dtype(np.uint8),
                                      int(np.prod(bshape)),
                                      raw_dtype=q)
        w.write_header_to_file(); w.write_kv_data_to_file(); w.write_ti_data_to_file()
        for name, shape, q, one in s.pend:
            if q is None:
                # as converters write vectors and routers of BF16 checkpoints: F32 that BF16 holds
                x = (np.full(shape, one, np.float32) if one else as_bf16(
                    rng.standard_normal(shape, dtype=np.float32) * 0.02))
            elif q == 'ids':
                x = ((rng.integers(0, one, (shape[0], 1)) + np.arange(shape[1])) % one).astype(
                    np.int32)
            else:
                x = raw(shape, q)
                if q == Q.F16: x = x.view(np.float16)
            w.write_tensor_data(x)
        w.close()

def vocab(w, n, pre):
    bs = list(range(ord('!'), ord('~') + 1)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    cs = bs[:]
    k = 0
    for b in range(256):
        if b not in bs: bs.append(b); cs.append(256 + k); k += 1
    toks = [chr(c) for c in cs]
    merges = [toks[i] + ' ' + toks[j] for i in range(0, 16) for j in range(0, 16)]
    toks += [m.replace(' ', '') for m in merges]
    types = [1] * len(toks)
    while len(toks) < n - 2: toks.append(f'<filler_{len(toks)}>'); types.append(1)
    toks += ['<|bos|>', '<|eos|>']; types += [3, 3]
    w.add_tokenizer_model('gpt2'); w.add_tokenizer_pre(pre)
    w.add_token_list(toks); w.add_token_types(types); w.add_token_merges(merges)
    w.add_bos_token_id(n - 2); w.add_eos_token_id(n - 1); w.add_pad_token_id(n - 1)

def size_keys(w, ctx, d, ff, heads, base, experts):
    w.add_context_length(ctx)
    w.add_embedding_length(d)
    w.add_feed_forward_length(ff)
    w.add_head_count(heads[0])
    w.add_head_count_kv(heads[1])
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(base)
    w.add_expert_used_count(experts[0])
    w.add_expert_count(experts[1])

def mla_keys(w, r, rope, nope, v):
    w.add_key_length(r + rope)
    w.add_value_length(r)
    w.add_key_length_mla(nope + rope)
    w.add_value_length_mla(v)
    w.add_rope_dimension_count(rope); w.add_file_type(1)

def gated(p, kind, n, ff, **k):
    """The three matrices of a feed-forward block; n: () or (experts,)."""
    for part, shape in ('gate', (ff, H)), ('up', (ff, H)), ('down', (H, ff)):
        W_.t(f'{p}ffn_{part}{kind and "_" + kind}.weight', n + shape, **k)

if a.model == 'dsv2lite':
    L = a.layers or 27
    E = a.experts or 64
    U = 6
    H = 2048
    NH = 16
    R = 512
    ROPE = 64
    NOPE = 128
    V = 128
    FF = 1408
    SH = 2
    NV = 102400
    W_ = W('deepseek2'); w = W_.w
    w.add_name(f'synthetic DeepSeek-V2-Lite shape {L}L {E}e')
    w.add_block_count(L)
    size_keys(w, ctx=163840, d=H, ff=10944, heads=(NH, 1), base=10000.0, experts=(U, E))
    w.add_expert_shared_count(SH)
    w.add_expert_feed_forward_length(FF)
    w.add_expert_weights_scale(1.0)
    w.add_expert_weights_norm(False)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX)
    w.add_leading_dense_block_count(1); w.add_vocab_size(NV); w.add_kv_lora_rank(R)
    mla_keys(w, R, ROPE, NOPE, V)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(40.0)
    w.add_rope_scaling_orig_ctx_len(4096)
    w.add_rope_scaling_yarn_log_mul(0.0707)
    vocab(w, NV, 'deepseek-llm')
    W_.t('token_embd.weight', (NV, H), frac=0)
    W_.t('output_norm.weight', (H,), f32=True, one=True); W_.t('output.weight', (NV, H))
    for i in range(L):
        p = f'blk.{i}.'; k = dict(il=i, nl=L)
        W_.t(p + 'attn_norm.weight', (H, ), f32=True, one=True)
        W_.t(p + 'attn_kv_a_norm.weight', (R, ), f32=True, one=True)
        W_.t(p + 'attn_q.weight', (NH * (NOPE + ROPE), H), **k)
        W_.t(p + 'attn_kv_a_mqa.weight', (R + ROPE, H), **k)
        W_.t(p + 'attn_k_b.weight', (NH, R, NOPE), **k)
        W_.t(p + 'attn_v_b.weight', (NH, V, R), **k)
        W_.t(p + 'attn_output.weight', (H, NH * V), **k)
        W_.t(p + 'ffn_norm.weight', (H, ), f32=True, one=True)
        if i < 1:
            gated(p, '', (), 10944, **k)
        else:
            W_.t(p + 'ffn_gate_inp.weight', (E, H), f32=True)
            gated(p, 'exps', (E, ), FF, frac=U / E, **k)
            gated(p, 'shexp', (), FF * SH, **k)
elif a.model in ('dsv3', 'dsv32'):
    NI, DI = (16, 128) if a.model == 'dsv32' else (0, 0)
    L = a.layers or 6
    E = a.experts or 256
    U = 8
    H = 2048
    NH = 32
    QR = 768
    R = 512
    ROPE = 64
    NOPE = 128
    V = 128
    FF = 768
    DENSE = 6144
    NV = 32000
    W_ = W('deepseek32' if NI else 'deepseek2'); w = W_.w
    w.add_name(f'synthetic DeepSeek-V3{".2" if NI else ""} proportions {L}L {E}e')
    if NI:
        w.add_uint32('deepseek32.attention.indexer.head_count', NI)
        w.add_uint32('deepseek32.attention.indexer.key_length', DI)
        w.add_uint32('deepseek32.attention.indexer.top_k', 2048)
    w.add_block_count(L + 1)
    w.add_nextn_predict_layers(1)
    size_keys(w, ctx=163840, d=H, ff=DENSE, heads=(NH, 1), base=10000.0, experts=(U, E))
    w.add_expert_shared_count(1)
    w.add_expert_group_count(8)
    w.add_expert_group_used_count(4)
    w.add_expert_feed_forward_length(FF)
    w.add_expert_weights_scale(2.5)
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_leading_dense_block_count(1); w.add_vocab_size(NV)
    w.add_q_lora_rank(QR); w.add_kv_lora_rank(R)
    mla_keys(w, R, ROPE, NOPE, V)
    vocab(w, NV, 'deepseek-v3')
    W_.t('token_embd.weight', (NV, H), frac=0)
    W_.t('output_norm.weight', (H,), f32=True, one=True); W_.t('output.weight', (NV, H))
    for i in range(L + 1):
        p = f'blk.{i}.'; k = dict(il=i, nl=L)
        on = 1.0 if i < L else 0  # a token reads the MTP layer for drafts only
        W_.t(p + 'attn_norm.weight', (H, ), f32=True, one=True)
        W_.t(p + 'attn_q_a_norm.weight', (QR, ), f32=True, one=True)
        W_.t(p + 'attn_kv_a_norm.weight', (R, ), f32=True, one=True)
        W_.t(p + 'attn_q_a.weight', (QR, H), frac=on, **k)
        W_.t(p + 'attn_q_b.weight', (NH * (NOPE + ROPE), QR), frac=on, **k)
        W_.t(p + 'attn_kv_a_mqa.weight', (R + ROPE, H), frac=on, **k)
        if NI:
            W_.t(p + 'indexer.attn_q_b.weight', (NI * DI, QR), frac=on, **k)
            W_.t(p + 'indexer.attn_k.weight', (DI, H), frac=on, **k)
            W_.t(p + 'indexer.k_norm.weight', (DI, ), f32=True, one=True)
            W_.t(p + 'indexer.k_norm.bias', (DI, ), f32=True)
            W_.t(p + 'indexer.proj.weight', (NI, H), f32=True, frac=on)
        W_.t(p + 'attn_k_b.weight', (NH, R, NOPE), frac=on, **k)
        W_.t(p + 'attn_v_b.weight', (NH, V, R), frac=on, **k)
        W_.t(p + 'attn_output.weight', (H, NH * V), frac=on, **k)
        W_.t(p + 'ffn_norm.weight', (H, ), f32=True, one=True)
        if i < 1:
            gated(p, '', (), DENSE, **k)
            continue
        W_.t(p + 'ffn_gate_inp.weight', (E, H), f32=True, frac=on)
        W_.t(p + 'exp_probs_b.bias', (E, ), f32=True, frac=on)
        gated(p, 'exps', (E, ), FF, frac=on * U / E, **k)
        gated(p, 'shexp', (), FF, frac=on, **k)
        if i == L:
            W_.t(p + 'nextn.eh_proj.weight', (H, 2 * H), frac=0, **k)
            W_.t(p + 'nextn.enorm.weight', (H, ), f32=True, one=True)
            W_.t(p + 'nextn.hnorm.weight', (H, ), f32=True, one=True)
            W_.t(p + 'nextn.shared_head_norm.weight', (H, ), f32=True, one=True)
elif a.model == 'dsv4':
    L = a.layers or 6
    E = a.experts or 64
    U, H, NH, D, ROPE, QR, OG, OL, FF, NV = 6, 2048, 32, 512, 64, 768, 8, 512, 768, 32000
    NI, DI, N = 32, 128, 4
    RATIO = [0] + [(4, 128)[i % 2] for i in range(L - 1)] + [0] * a.mtp
    W_ = W('deepseek4'); w = W_.w; c = 'deepseek4.'
    w.add_name(f'synthetic DeepSeek-V4 proportions {L}L {E}e')
    w.add_block_count(L + a.mtp)
    if a.mtp: w.add_nextn_predict_layers(1)
    size_keys(w, ctx=1 << 20, d=H, ff=FF, heads=(NH, 1), base=10000.0, experts=(U, E))
    w.add_key_length(D); w.add_value_length(D); w.add_rope_dimension_count(ROPE)
    w.add_q_lora_rank(QR); w.add_sliding_window(128)
    w.add_array(c + 'attention.compress_ratios', RATIO)
    w.add_float32(c + 'attention.compress_rope_freq_base', 160000.0)
    for key, v in (('attention.output_group_count', OG), ('attention.output_lora_rank', OL),
                   ('attention.indexer.head_count', NI), ('attention.indexer.key_length', DI),
                   ('attention.indexer.top_k', 512), ('hyper_connection.count', N),
                   ('hyper_connection.sinkhorn_iterations', 20), ('hash_layer_count', 1),
                   ('expert_gating_func', 4)):
        w.add_uint32(c + key, v)
    w.add_float32(c + 'hyper_connection.epsilon', 1e-6)
    for x in ('exp', 'shexp'): w.add_array(f'{c}swiglu_clamp_{x}', [10.0] * (L + a.mtp))
    w.add_expert_feed_forward_length(FF); w.add_expert_shared_count(1)
    w.add_expert_weights_scale(1.5); w.add_expert_weights_norm(True)
    w.add_vocab_size(NV); w.add_file_type(1); vocab(w, NV, 'deepseek-v3')
    def streams(name, rows, n, frac):
        W_.t(name + '_fn.weight', (rows, N * H), f32=True, frac=frac)
        W_.t(name + '_base.weight', (rows, ), f32=True)
        W_.t(name + '_scale.weight', (n, ), f32=True, one=1)
    def entries(name, width, ratio, k):
        n = 2 * width if ratio == 4 else width
        W_.t(name + '_kv.weight', (n, H), **k)
        W_.t(name + '_gate.weight', (n, H), **k)
        W_.t(name + '_ape.weight', (ratio, n), f32=True)
        W_.t(name + '_norm.weight', (width, ), f32=True, one=1)
    W_.t('token_embd.weight', (NV, H), frac=0)
    W_.t('output_norm.weight', (H, ), f32=True, one=1); W_.t('output.weight', (NV, H))
    streams('output_hc', N, 1, 1)
    for i in range(L + a.mtp):
        on = 1.0 if i < L else 0  # a token reads the MTP layer for drafts only
        p = f'blk.{i}.'; k = dict(il=i, nl=L, frac=on)
        streams(p + 'hc_attn', (2 + N) * N, 3, on); streams(p + 'hc_ffn', (2 + N) * N, 3, on)
        for name, n in (('attn_norm', H), ('ffn_norm', H), ('attn_q_a_norm', QR),
                        ('attn_kv_a_norm', D)):
            W_.t(f'{p}{name}.weight', (n, ), f32=True, one=1)
        W_.t(p + 'attn_sinks.weight', (NH, ), f32=True)
        W_.t(p + 'attn_q_a.weight', (QR, H), **k)
        W_.t(p + 'attn_q_b.weight', (NH * D, QR), **k)
        W_.t(p + 'attn_kv.weight', (D, H), **k)
        W_.t(p + 'attn_output_a.weight', (OG * OL, NH * D // OG), **k)
        W_.t(p + 'attn_output_b.weight', (H, OG * OL), **k)
        if RATIO[i]: entries(p + 'attn_compressor', D, RATIO[i], k)
        if RATIO[i] == 4:
            W_.t(p + 'indexer.attn_q_b.weight', (NI * DI, QR), **k)
            W_.t(p + 'indexer.proj.weight', (NI, H), f32=True, frac=on)
            entries(p + 'indexer_compressor', DI, 4, k)
        W_.t(p + 'ffn_gate_inp.weight', (E, H), f32=True, frac=on)
        if i == 0:
            W_.ids(p + 'ffn_gate_tid2eid.weight', (NV, U), E)
        else:
            W_.t(p + 'exp_probs_b.bias', (E, ), f32=True, frac=on)
        gated(p, 'exps', (E, ), FF, **dict(k, frac=on * U / E))
        gated(p, 'shexp', (), FF, **k)
        if i == L:
            W_.t(p + 'nextn.e_proj.weight', (H, H), **k)
            W_.t(p + 'nextn.h_proj.weight', (H, H), **k)
            for n in ('enorm', 'hnorm', 'shared_head_norm'):
                W_.t(f'{p}nextn.{n}.weight', (H, ), f32=True, one=1)
            streams(p + 'nextn.hc_head', N, 1, 0)
elif a.model == 'qwen35moe':
    L = a.layers or 8
    E = a.experts or 256
    U = 8
    H = 2048
    NH = 16
    NKV = 2
    D = 256
    FF = 512
    NV = 248320
    NK, NVH, DD = 16, 32, 128  # of delta layers: heads of keys, of values, widths
    W_ = W('qwen35moe'); w = W_.w
    w.add_name(f'synthetic Qwen3.5-35B-A3B shape {L}L {E}e')
    w.add_block_count(L + a.mtp)
    if a.mtp: w.add_nextn_predict_layers(1)
    size_keys(w, ctx=262144, d=H, ff=FF, heads=(NH, NKV), base=1e7, experts=(U, E))
    w.add_expert_feed_forward_length(FF)
    w.add_expert_shared_feed_forward_length(FF)
    w.add_key_length(D)
    w.add_value_length(D)
    w.add_rope_dimension_count(64)
    w.add_array('qwen35moe.rope.dimension_sections', [11, 11, 10, 0])
    w.add_uint32('qwen35moe.full_attention_interval', 4)
    w.add_uint32('qwen35moe.ssm.conv_kernel', 4)
    w.add_uint32('qwen35moe.ssm.state_size', DD)
    w.add_uint32('qwen35moe.ssm.group_count', NK)
    w.add_uint32('qwen35moe.ssm.time_step_rank', NVH)
    w.add_uint32('qwen35moe.ssm.inner_size', NVH * DD)
    w.add_vocab_size(NV); w.add_file_type(1); vocab(w, NV, 'qwen35')
    W_.t('token_embd.weight', (NV, H), frac=0)
    W_.t('output_norm.weight', (H,), f32=True, one=1); W_.t('output.weight', (NV, H))
    for i in range(L + a.mtp):
        on = 1.0 if i < L else 0  # a token reads the MTP layer for drafts only
        p = f'blk.{i}.'; k = dict(il=i, nl=L, frac=on)
        CH = 2 * NK * DD + NVH * DD
        W_.t(p + 'attn_norm.weight', (H,), f32=True, one=1)
        if (i + 1) % 4 == 0 or i == L:
            W_.t(p + 'attn_q.weight', (2 * NH * D, H), **k)
            W_.t(p + 'attn_k.weight', (NKV * D, H), **k)
            W_.t(p + 'attn_v.weight', (NKV * D, H), **k)
            W_.t(p + 'attn_output.weight', (H, NH * D), **k)
            W_.t(p + 'attn_q_norm.weight', (D, ), f32=True, one=1)
            W_.t(p + 'attn_k_norm.weight', (D, ), f32=True, one=1)
        else:
            W_.t(p + 'attn_qkv.weight', (CH, H), **k)
            W_.t(p + 'attn_gate.weight', (NVH * DD, H), **k)
            W_.t(p + 'ssm_beta.weight', (NVH, H), **k)
            W_.t(p + 'ssm_alpha.weight', (NVH, H), **k)
            W_.t(p + 'ssm_conv1d.weight', (CH, 4), f32=True)
            W_.t(p + 'ssm_dt.bias', (NVH, ), f32=True)
            W_.t(p + 'ssm_a', (NVH, ), f32=True, one=-0.5)
            W_.t(p + 'ssm_norm.weight', (DD, ), f32=True, one=1)
            W_.t(p + 'ssm_out.weight', (H, NVH * DD), **k)
        W_.t(p + 'post_attention_norm.weight', (H, ), f32=True, one=1)
        W_.t(p + 'ffn_gate_inp.weight', (E, H), f32=True, frac=on)
        W_.t(p + 'ffn_gate_inp_shexp.weight', (H, ), f32=True, frac=on)
        gated(p, 'exps', (E, ), FF, **dict(k, frac=on * U / E))
        gated(p, 'shexp', (), FF, **k)
        if i == L:
            W_.t(p + 'nextn.eh_proj.weight', (H, 2 * H), **k)
            for n in ('enorm', 'hnorm', 'shared_head_norm'):
                W_.t(f'{p}nextn.{n}.weight', (H, ), f32=True, one=1)
else:
    L = a.layers or 12
    E = a.experts or 128
    U = 8
    H = 2048
    NH = 32
    NKV = 4
    D = 128
    FF = 768
    NV = 151936
    W_ = W('qwen3moe'); w = W_.w
    w.add_name(f'synthetic Qwen3-30B-A3B shape {L}L {E}e')
    w.add_block_count(L)
    size_keys(w, ctx=40960, d=H, ff=6144, heads=(NH, NKV), base=1e6, experts=(U, E))
    w.add_expert_feed_forward_length(FF)
    w.add_key_length(D)
    w.add_value_length(D)
    w.add_vocab_size(NV); w.add_file_type(1); vocab(w, NV, 'qwen2')
    W_.t('token_embd.weight', (NV, H), frac=0)
    W_.t('output_norm.weight', (H,), f32=True, one=True); W_.t('output.weight', (NV, H))
    for i in range(L):
        p = f'blk.{i}.'; k = dict(il=i, nl=L)
        W_.t(p + 'attn_norm.weight', (H,), f32=True, one=True)
        W_.t(p + 'attn_q.weight', (NH * D, H), **k)
        W_.t(p + 'attn_k.weight', (NKV * D, H), **k)
        W_.t(p + 'attn_v.weight', (NKV * D, H), **k)
        W_.t(p + 'attn_output.weight', (H, NH * D), **k)
        W_.t(p + 'attn_q_norm.weight', (D, ), f32=True, one=True)
        W_.t(p + 'attn_k_norm.weight', (D, ), f32=True, one=True)
        W_.t(p + 'ffn_norm.weight', (H, ), f32=True, one=True)
        W_.t(p + 'ffn_gate_inp.weight', (E, H), f32=True)
        gated(p, 'exps', (E, ), FF, frac=U / E, **k)
W_.write()
