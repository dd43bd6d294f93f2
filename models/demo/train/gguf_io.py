#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The model as a GGUF file (architecture deepseek2) and back.

  gguf_io.py CHECKPOINT.pt TOKENIZER_FOLDER OUT.gguf

Matrices are BF16, norms, routers and their biases F32. kv_b is stored split, as attn_k_b [heads,
kv_lora, nope] and attn_v_b [heads, v, kv_lora]; the experts of a layer are one tensor each; the MTP
layer is the last block, with its nextn tensors (embedding and head once more, as in DeepSeek-V3's
own files).
"""
import json
import os
import sys

import gguf
import numpy as np
import torch

from model import CONFIG, Model, round_bf16

BLOCK = {'attn_norm.weight': 'attn_norm', 'ffn_norm.weight': 'ffn_norm', 'attn.q_a': 'attn_q_a',
         'attn.q_a_norm.weight': 'attn_q_a_norm', 'attn.q_b': 'attn_q_b',
         'attn.kv_a': 'attn_kv_a_mqa',
         'attn.kv_a_norm.weight': 'attn_kv_a_norm', 'attn.o': 'attn_output'}
DENSE = {'ffn.gate': 'ffn_gate', 'ffn.up': 'ffn_up', 'ffn.down': 'ffn_down'}
MOE = {'ffn.router': 'ffn_gate_inp', 'ffn.shared.gate': 'ffn_gate_shexp',
       'ffn.shared.up': 'ffn_up_shexp',
       'ffn.shared.down': 'ffn_down_shexp', 'ffn.down': 'ffn_down_exps'}
MTP = {'enorm.weight': 'nextn.enorm', 'hnorm.weight': 'nextn.hnorm', 'eh_proj': 'nextn.eh_proj',
       'mtp_norm.weight': 'nextn.shared_head_norm',
       'embed': 'nextn.embed_tokens', 'head': 'nextn.shared_head_head'}


def tensors(model):
    """(name, array, is_f32) of every tensor of the file, in its order."""
    c, s = model.c, {k: v.detach() for k, v in model.state_dict().items()}
    yield 'token_embd.weight', s['embed'], False
    yield 'output_norm.weight', s['norm.weight'], True
    yield 'output.weight', s['head'], False
    for i in range(c['layers'] + 1):
        src, dst = (f'blocks.{i}.' if i < c['layers'] else 'mtp.'), f'blk.{i}.'
        for a, b in BLOCK.items():
            yield f'{dst}{b}.weight', s[src + a], a.endswith('norm.weight')
        kv = s[src + 'attn.kv_b'].view(c['heads'], c['nope'] + c['v'], c['kv_lora'])
        yield dst + 'attn_k_b.weight', kv[:, :c['nope']].transpose(1, 2).contiguous(), False
        yield dst + 'attn_v_b.weight', kv[:, c['nope']:].contiguous(), False
        for a, b in (DENSE if i < c['dense_layers'] else MOE).items():
            yield f'{dst}{b}.weight', s[src + a], a.endswith('router')
        if i >= c['dense_layers']:
            f = c['expert_ffn']
            yield dst + 'ffn_gate_exps.weight', s[src + 'ffn.gu'][:, :f].contiguous(), False
            yield dst + 'ffn_up_exps.weight', s[src + 'ffn.gu'][:, f:].contiguous(), False
            yield dst + 'exp_probs_b.bias', s[src + 'ffn.bias'], True
        if i == c['layers']:
            for a, b in MTP.items():
                yield f'{dst}{b}.weight', s[a], a.endswith('norm.weight')


def load_gguf(path, model):
    """Fill the model from a file that gguf_io wrote."""
    have = {}
    for t in gguf.GGUFReader(path).tensors:
        a = np.array(t.data)
        if t.tensor_type == gguf.GGMLQuantizationType.BF16:
            a = (a.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        have[t.name] = torch.from_numpy(a.reshape([int(x) for x in reversed(t.shape)]).copy())
    c, out = model.c, {}
    out['embed'], out['norm.weight'], out['head'] = (
        have[k + '.weight'] for k in ('token_embd', 'output_norm', 'output'))
    for i in range(c['layers'] + 1):
        dst, src = (f'blocks.{i}.' if i < c['layers'] else 'mtp.'), f'blk.{i}.'
        for a, b in list(BLOCK.items()) + list((DENSE if i < c['dense_layers'] else MOE).items()):
            out[dst + a] = have[f'{src}{b}.weight']
        k, v = have[src + 'attn_k_b.weight'].transpose(1, 2), have[src + 'attn_v_b.weight']
        out[dst + 'attn.kv_b'] = torch.cat([k, v], 1).reshape(-1, c['kv_lora'])
        if i >= c['dense_layers']:
            out[dst + 'ffn.gu'] = torch.cat([have[src + 'ffn_gate_exps.weight'],
                                             have[src + 'ffn_up_exps.weight']], 1)
            out[dst + 'ffn.bias'] = have[src + 'exp_probs_b.bias']
        if i == c['layers']:
            for a, b in MTP.items():
                if a not in ('embed', 'head'):
                    out[a] = have[f'{src}{b}.weight']
    model.load_state_dict(out)
    return model


def load(path):
    """The model of a checkpoint or of a GGUF file, rounded as exported, ready to evaluate in
    float32."""
    model = Model(CONFIG)
    if path.endswith('.gguf'):
        load_gguf(path, model)
    else:
        model.load_state_dict(torch.load(path, weights_only=False)['model'])
    model.dtype = torch.float32
    return round_bf16(model).eval()


def write_tokenizer(w, folder):
    t = json.load(open(os.path.join(folder, 'tokenizer.json'), encoding='utf-8'))
    config = json.load(open(os.path.join(folder, 'tokenizer_config.json'), encoding='utf-8'))
    ids = dict(t['model']['vocab'])
    types = {i: gguf.TokenType.NORMAL for i in ids.values()}
    for a in t['added_tokens']:
        ids[a['content']] = a['id']
        types[a['id']] = gguf.TokenType.CONTROL if a['special'] else gguf.TokenType.USER_DEFINED
    names = sorted(ids, key=ids.get)
    assert [ids[n] for n in names] == list(range(len(names)))
    w.add_tokenizer_model('gpt2')
    w.add_tokenizer_pre('qwen2')
    w.add_token_list(names)
    w.add_token_types([types[i] for i in range(len(names))])
    w.add_token_merges([m if isinstance(m, str) else ' '.join(m) for m in t['model']['merges']])
    w.add_bos_token_id(ids[config['bos_token']])
    w.add_eos_token_id(ids[config['eos_token']])
    w.add_pad_token_id(ids[config['pad_token']])
    w.add_add_bos_token(False)
    w.add_chat_template(config['chat_template'])


def export(model, folder, path):
    c = model.c
    w = gguf.GGUFWriter(path + '.new', 'deepseek2')
    w.add_name('sluice demo')
    w.add_description('A small DeepSeek-V3-architecture model, trained for the sluice project')
    w.add_license('apache-2.0')
    w.add_size_label('16x0.8M')
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    w.add_block_count(c['layers'] + 1)
    w.add_nextn_predict_layers(1)
    w.add_context_length(c['context'])
    w.add_embedding_length(c['hidden'])
    w.add_feed_forward_length(c['dense_ffn'])
    w.add_head_count(c['heads'])
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(c['eps'])
    w.add_rope_freq_base(c['theta'])
    w.add_rope_dimension_count(c['rope'])
    w.add_vocab_size(c['vocab'])
    w.add_q_lora_rank(c['q_lora'])
    w.add_kv_lora_rank(c['kv_lora'])
    w.add_key_length(c['kv_lora'] + c['rope'])
    w.add_value_length(c['kv_lora'])
    w.add_key_length_mla(c['nope'] + c['rope'])
    w.add_value_length_mla(c['v'])
    w.add_leading_dense_block_count(c['dense_layers'])
    w.add_expert_feed_forward_length(c['expert_ffn'])
    w.add_expert_count(c['experts'])
    w.add_expert_used_count(c['used'])
    w.add_expert_shared_count(c['shared'])
    w.add_expert_group_count(c['groups'])
    w.add_expert_group_used_count(c['groups_used'])
    w.add_expert_weights_scale(c['scaling'])
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    write_tokenizer(w, folder)
    for name, t, f32 in tensors(model):
        a = t.float().numpy()
        if f32:
            w.add_tensor(name, a)
        else:
            b = (a.view(np.uint32) >> 16).astype(np.uint16)
            assert ((b.astype(np.uint32) << 16).view(np.float32) == a).all(), name
            w.add_tensor(name, b.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(path + '.new', path)


if __name__ == '__main__':
    export(load(sys.argv[1]), sys.argv[2], sys.argv[3])
    print(sys.argv[3], os.path.getsize(sys.argv[3]), 'bytes')
