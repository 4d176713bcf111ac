"""Training state -> checkpoint folder in the official layout, and back.  export.py DATA_DIR STATE_PREFIX OUT_DIR [SETTINGS]"""
import json
import os
import shutil
import sys
import tomllib

import torch
from safetensors.torch import load_file, save_file

import kernels as K
import model as M
import train

SHARD = 8.5e6
MAG = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e8(s):
    return ((s.contiguous().view(torch.int32) >> 23) & 255).to(torch.uint8).view(torch.float8_e8m0fnu)


def un_e8(t):
    return (t.view(torch.uint8).to(torch.int32) << 23).view(torch.float32)


def tiles(s):
    return s.repeat_interleave(32, -1).repeat_interleave(32, -2)


def pack_fp8(w):
    s = K.w8_scale(w)
    return (w.float() / tiles(s)).clamp(-448, 448).to(torch.float8_e4m3fn), e8(s)


def pack_fp4(w):
    """[N, K] -> int8 [N, K / 2] (low nibble = even column), e8m0 [N, K / 32]"""
    s = K.w4_scale(w)
    q = K.e2m1((w.float().unflatten(-1, (-1, 32)) / s).clamp(-6, 6)).flatten(-2)
    code = torch.searchsorted(MAG, q.abs()).to(torch.uint8) | (torch.signbit(q).to(torch.uint8) << 3)
    return (code[..., 0::2] | (code[..., 1::2] << 4)).view(torch.int8), e8(s.squeeze(-1))


def unpack_fp4(p, s):
    u = p.view(torch.uint8)
    code = torch.stack([u & 15, u >> 4], -1).flatten(-2).long()
    v = MAG[code & 7] * torch.where(code & 8 > 0, -1.0, 1.0)
    return (v.unflatten(-1, (-1, 32)) * un_e8(s)[..., None]).flatten(-2)


def tensors(m):
    """(official name, tensor) in layer order"""
    mods = dict(m.named_modules())
    for name, p in m.named_parameters():
        p = p.detach().cpu().float()
        owner, _, leaf = name.rpartition('.')
        mod = mods.get(owner)
        if isinstance(mod, M.Experts):
            four = 'shared' not in owner
            for e in range(p.shape[0]):
                nm = f'{owner}.{e}.{leaf}' if four else f'{owner}.{leaf}'
                q, s = (pack_fp4 if four else pack_fp8)(p[e])
                yield nm + '.weight', q
                yield nm + '.scale', s
        elif owner.endswith('engram.embed'):
            v = p.unflatten(-1, (-1, 32))
            s = K.pow2ceil(v.abs().amax(-1).clamp_min(1e-4) * (1 / 448))
            yield name, (v / s[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn).flatten(-2)
            yield owner + '.scale', e8(s)
        elif isinstance(mod, M.W) and mod.kind == 8 and leaf == 'weight':
            q, s = pack_fp8(p)
            yield name, q
            yield owner + '.scale', s
        elif 'hc_' in leaf or leaf in ('attn_sink', 'bias_vl') or leaf == 'bias' and owner.endswith('gate'):
            yield name, p
        else:
            yield name, p.to(torch.bfloat16)


def config(settings, h, ids):
    c = settings['model']
    t = {k: v for k, v in c.items() if k != 'yarn'}
    fac, bf, bs, orig = c['yarn']
    t.update(model_type='deepseek_v41_text', num_key_value_heads=1, hidden_act='silu', rms_norm_eps=1e-20, tie_word_embeddings=False, max_position_embeddings=65536,
             rope_scaling=dict(rope_type='yarn', factor=fac, beta_fast=bf, beta_slow=bs, original_max_position_embeddings=orig),
             n_shared_experts=1, scoring_func='sqrtsoftplus', topk_method='noaux_tc', norm_topk_prob=True, hc_eps=1e-6,
             engram_num_embeddings=h['num_embeddings'], engram_pad_token_id=2, engram_compressed_vocab_size=h['compressed'], dspark_noise_token_id=ids['<｜System｜>'])
    return dict(architectures=['DeepseekV41ForCausalLM'], model_type='deepseek_v41', image_token_id=ids['<｜deepseek_image｜>'], dtype='bfloat16',
                bos_token_id=0, eos_token_id=1, pad_token_id=2,
                quantization_config=dict(quant_method='fp8', activation_scheme='dynamic', weight_block_size=[32, 32], scale_fmt='ue8m0', expert_dtype='fp4'),
                text_config=t, vision_config=dict(settings['vision'], model_type='deepseek_v41_vision', max_wh_ratio=None))


def export(m, settings, d, out):
    os.makedirs(out, exist_ok=True)
    for f in os.listdir(out):
        if f.endswith('.safetensors'):
            os.remove(f'{out}/{f}')
    shards, cur, size = [], {}, 0
    for n, t in tensors(m):
        b = t.numel() * t.element_size()
        if size + b > SHARD:
            shards.append(cur)
            cur, size = {}, 0
        cur[n] = t.contiguous()
        size += b
    shards.append(cur)
    wm, tot = {}, 0
    for i, s in enumerate(shards):
        f = f'model-{i + 1:05d}-of-{len(shards):05d}.safetensors'
        save_file(s, f'{out}/{f}')
        wm.update({n: f for n in s})
        tot += sum(t.numel() * t.element_size() for t in s.values())
    json.dump(dict(metadata=dict(total_size=tot), weight_map=wm), open(f'{out}/model.safetensors.index.json', 'w'), separators=(',', ':'))
    ids = {a['content']: a['id'] for a in json.load(open(f'{d}/tokenizer.json'))['added_tokens']}
    h = m.hashes
    json.dump(config(settings, h, ids), open(f'{out}/config.json', 'w'), indent=1)
    if os.path.abspath(d) != os.path.abspath(out):
        shutil.copyfile(f'{d}/tokenizer.json', f'{out}/tokenizer.json')
    json.dump(dict(tokenizer_class='PreTrainedTokenizerFast', bos_token='<｜begin▁of▁sentence｜>', eos_token='<｜end▁of▁sentence｜>', pad_token='<｜▁pad▁｜>',
                   add_bos_token=False, add_eos_token=False, model_max_length=65536, clean_up_tokenization_spaces=False), open(f'{out}/tokenizer_config.json', 'w'), ensure_ascii=False, indent=1)
    json.dump(dict(mult=h['mult'], primes=h['primes'], num_embeddings=h['num_embeddings'], compressed_vocab_size=h['compressed'], token_map=h['token_map']), open(f'{out}/engram_hash.json', 'w'))
    json.dump(dict(do_sample=False), open(f'{out}/generation_config.json', 'w'))
    return len(wm), tot


def read_back(m, out):
    """fill the model with the values an engine would dequantise"""
    idx = json.load(open(f'{out}/model.safetensors.index.json'))['weight_map']
    T = {}
    for f in sorted(set(idx.values())):
        T.update(load_file(f'{out}/{f}'))
    mods = dict(m.named_modules())
    with torch.no_grad():
        for name, p in m.named_parameters():
            owner, _, leaf = name.rpartition('.')
            if isinstance(mods.get(owner), M.Experts):
                four = 'shared' not in owner
                v = []
                for e in range(p.shape[0]):
                    nm = f'{owner}.{e}.{leaf}' if four else f'{owner}.{leaf}'
                    w, s = T[nm + '.weight'], T[nm + '.scale']
                    v.append(unpack_fp4(w, s) if four else w.float() * tiles(un_e8(s)))
                p.copy_(torch.stack(v))
            else:
                t = T[name]
                if t.dtype == torch.float8_e4m3fn:
                    s = un_e8(T[owner + '.scale'])
                    t = (t.float().unflatten(-1, (-1, 32)) * s[..., None]).flatten(-2) if 'engram.embed' in name else t.float() * tiles(s)
                p.copy_(t.float())
    return T


def main(d, prefix, out, settings=f'{train.HERE}/settings.toml'):
    st = tomllib.load(open(settings, 'rb'))
    m = M.build(st, d)
    train.load(m, prefix)
    print('tensors, bytes', export(m, st, d, out))
    ref = {n: p.detach().clone() for n, p in m.named_parameters()}
    read_back(m, out)
    mods, bad = dict(m.named_modules()), []
    for n, p in m.named_parameters():
        owner, _, leaf = n.rpartition('.')
        mod, w = mods.get(owner), ref[n]
        if isinstance(mod, M.Experts):
            w = K.w4(w) if 'shared' not in owner else K.w8(w)
        elif owner.endswith('engram.embed'):
            w = K.q8(w)
        elif isinstance(mod, M.W) and mod.kind == 8 and leaf == 'weight':
            w = K.w8(w)
        elif not ('hc_' in leaf or leaf in ('attn_sink', 'bias', 'bias_vl') and 'vision' not in n and 'aligner' not in n):
            w = w.to(torch.bfloat16).float()
        if not torch.equal(w, p.detach()):
            bad.append(n)
    print('tensors that differ from the quantisers of training:', bad)


if __name__ == '__main__':
    main(*sys.argv[1:])
