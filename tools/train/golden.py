"""Golden values of a checkpoint folder, computed from its files by the rules of the model specification alone (no training code).

golden.py CHECKPOINT OUT_DIR [--full]     writes OUT_DIR/golden/*; a link to the checkpoint belongs beside it.
Every BF16 rounding point and quantiser of the exact inference numerics is here; products accumulate in FP32, softmax goes in chunks of 64 slots with p in BF16.
Sequences are short, so every step is a whole forward: a decode step is the last row of the longer sequence.
"""
import argparse
import glob
import json
import math
import os
import random
import unicodedata

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import tasks

EPS = 1e-20
MAG = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def bf(x):
    return x.to(torch.bfloat16).float()


def pow2ceil(t):
    return ((t.contiguous().view(torch.int32) + 0x7FFFFF) >> 23 << 23).view(torch.float32)


def e4m3(x):
    return x.to(torch.float8_e4m3fn).float()


def e2m1(x):
    i = torch.bucketize(x.abs(), torch.tensor([.25, .75, 1.25, 1.75, 2.5, 3.5, 5.0]))          # the lower code at a tie ...
    tie = (x.abs()[..., None] == torch.tensor([.75, 1.75, 3.5])).any(-1)                        # ... unless the upper one is even
    return torch.copysign(MAG[i + tie.long()], x)


def groups(x, g, f):
    return f(x.unflatten(-1, (-1, g))).flatten(-2)


def q8(x):
    def f(v):
        s = pow2ceil(v.abs().amax(-1, keepdim=True).clamp_min(1e-4) * torch.tensor(1 / 448))
        return e4m3((v / s).clamp(-448, 448)) * s
    return groups(x, 32, f)


def q4e8(x):
    def f(v):
        s = pow2ceil(v.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -126) * torch.tensor(1 / 6))
        return e2m1((v / s).clamp(-6, 6)) * s
    return groups(x, 32, f)


def q4e4(x):
    def f(v):
        s = e4m3((v.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0 ** -9) / 6).clamp_max(448))
        return e2m1((v / s).clamp(-6, 6)) * s
    return groups(x, 16, f)


def rms(x, w, eps=EPS):
    return bf(w * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)))


class Reference:
    def __init__(self, path):
        c = json.load(open(f'{path}/config.json'))
        self.top, self.c = c, c['text_config']
        self.T, self.cache = {}, {}
        for f in sorted(glob.glob(f'{path}/*.safetensors')):
            self.T.update(load_file(f))
        self.tk = Tokenizer.from_file(f'{path}/tokenizer.json')
        self.image = c['image_token_id']
        self.last = self.c['index_source_layer_ids'][-1]
        self.freq = [self.freqs(0), self.freqs(1)]
        self.tables()

    # ---- weights
    def w(self, n):
        """a weight as FP32 values"""
        if n not in self.cache:
            self.cache[n] = self.dequantised(n)
        return self.cache[n]

    def dequantised(self, n):
        t = self.T[n + '.weight'] if n + '.weight' in self.T else self.T[n]
        s = self.T.get(n + '.scale')
        if s is None:
            return t.float()
        s = (s.view(torch.uint8).to(torch.int32) << 23).view(torch.float32)
        if t.dtype == torch.int8:
            u = t.view(torch.uint8)
            code = torch.stack([u & 15, u >> 4], -1).flatten(-2).long()
            return MAG[code & 7] * torch.where(code & 8 > 0, -1.0, 1.0) * s.repeat_interleave(32, -1)
        if 'engram.embed' in n:
            return t.float() * s.repeat_interleave(32, -1)
        return t.float() * s.repeat_interleave(32, -1).repeat_interleave(32, -2)

    def lin8(self, x, n):
        return bf(q8(x) @ self.w(n).t())

    def lin16(self, x, n):
        return bf(x @ self.w(n).t())

    def freqs(self, m):
        c, n = self.c, self.c['qk_rope_head_dim']
        i = torch.arange(0, n, 2).float() / n
        if not m:
            return 1 / torch.tensor(float(c['rope_theta'])) ** i
        th, y = c['compress_rope_theta'], c['rope_scaling']
        base = 1 / torch.tensor(float(th)) ** i

        def corr(b):
            return n * math.log(y['original_max_position_embeddings'] / (2 * math.pi * b)) / (2 * math.log(th))
        lo, hi = max(math.floor(corr(y['beta_fast'])), 0), min(math.ceil(corr(y['beta_slow'])), n - 1)
        k = 1 - ((torch.arange(n // 2).float() - lo) / max(hi - lo, 1e-3)).clamp(0, 1)
        return base / y['factor'] * (1 - k) + base * k

    def rope(self, x, pos, m, inv=False):
        """x [T, ..., D], pos [T]"""
        ang = pos.float()[:, None] * self.freq[1 if m else 0]
        for _ in range(x.dim() - 2):
            ang = ang[:, None]
        n = ang.shape[-1] * 2
        a, b = x[..., :-n], x[..., -n:].unflatten(-1, (-1, 2))
        c, s = ang.double().cos().float(), ang.double().sin().float() * (-1 if inv else 1)
        return torch.cat([a, bf(torch.stack([b[..., 0] * c - b[..., 1] * s, b[..., 0] * s + b[..., 1] * c], -1).flatten(-2))], -1)

    # ---- Engram
    def tables(self):
        c, keys, self.map = self.c, {}, []
        for i in range(c['vocab_size']):
            t = self.tk.decode([i], skip_special_tokens=False)
            if '\ufffd' in t:
                k = self.tk.id_to_token(i)
            else:
                n = ''.join(x for x in unicodedata.normalize('NFD', unicodedata.normalize('NFKC', t)) if unicodedata.category(x) != 'Mn').lower()
                out = ''
                for x in n:
                    x = ' ' if x in ' \t\r\n' else x
                    out += '' if x == ' ' and out.endswith(' ') else x
                k = ' ' if out == ' ' else out.strip()
                k = k or t
            self.map.append(keys.setdefault(k, len(keys)))
        assert len(keys) == c['engram_compressed_vocab_size'], len(keys)
        half = ((2 ** 63 - 1) // len(keys)) // 2
        per, n = 3 * c['engram_n_heads'], c['engram_vocab_size']
        primes = []
        while len(primes) < per * len(c['engram_layer_ids']):
            if all(n % q for q in range(2, int(n ** 0.5) + 1)):
                primes.append(n)
            n += 1
        self.mult = [[2 * int(v) + 1 for v in np.random.default_rng(10007 * L).integers(0, half, 4)] for L in c['engram_layer_ids']]
        self.primes = [primes[i * per:(i + 1) * per] for i in range(len(c['engram_layer_ids']))]

    def hash_rows(self, ids):
        """[T, layers, 3 * heads]"""
        c, pad, out = self.c, self.map[self.c['engram_pad_token_id']], []
        for t in range(len(ids)):
            v, dead = [], False
            for i in range(4):
                dead = dead or t - i < 0 or ids[t - i] == self.image
                v.append(pad if dead else self.map[ids[t - i]])
            row = []
            for li in range(len(c['engram_layer_ids'])):
                r, off, k, cols = v[0] * self.mult[li][0], 0, 0, []
                for n in range(1, 4):
                    r ^= v[n] * self.mult[li][n]
                    for _ in range(c['engram_n_heads']):
                        cols.append(r % self.primes[li][k] + off)
                        off += self.primes[li][k]
                        k += 1
                row.append(cols)
            out.append(row)
        return torch.tensor(out)

    def engram(self, X, l, rows, img, keep):
        P, D = f'layers.{l}.engram.', X.shape[-1]
        e = self.w(P + 'embed')[rows].flatten(-2)
        kvv = self.lin8(e, P + 'wkv')
        key, val = kvv[:, :4 * D].unflatten(-1, (4, D)), kvv[:, None, 4 * D:]
        dot = (X * (self.w(P + 'q_weight') * self.w(P + 'k_weight')) * key).sum(-1)
        dot = dot * (torch.rsqrt(X.square().mean(-1) + EPS) * torch.rsqrt(key.square().mean(-1) + EPS)) * D ** -0.5
        g = torch.sigmoid(torch.copysign(torch.sqrt(dot.abs().clamp_min(1e-6)), dot))
        g = torch.where(img[:, None], 0.0, g)
        keep[f'engram_gate.{l}'] = g
        return bf(X + g[..., None] * val)

    # ---- streams
    def mix(self, X, P, site):
        fn, base, scale = (self.T[f'{P}hc_{site}_{k}'].float() for k in ('fn', 'base', 'scale'))
        flat = X.flatten(1)
        t = (flat @ fn.t()) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + EPS)
        he = self.c['hc_eps']
        A = torch.softmax((t[:, 8:] * scale[2] + base[8:]).view(-1, 4, 4), -1) + he
        A = A / (A.sum(1, keepdim=True) + he)
        for _ in range(self.c['hc_sinkhorn_iters'] - 1):
            A = A / (A.sum(2, keepdim=True) + he)
            A = A / (A.sum(1, keepdim=True) + he)
        return torch.sigmoid(t[:, :4] * scale[0] + base[:4]) + he, 2 * torch.sigmoid(t[:, 4:8] * scale[1] + base[4:8]), A

    @staticmethod
    def collapse(X, p):
        return bf((X * p[..., None]).sum(1))

    @staticmethod
    def expand(y, X, o, A):
        return bf(o[..., None] * y[:, None] + torch.einsum('tjk,tjd->tkd', A, X))

    # ---- attention
    def attend(self, q, rows, ok, sink):
        """q [T, H, D]; rows [K, D]; ok [T, K]"""
        s = torch.einsum('thd,kd->thk', q, rows) * q.shape[-1] ** -0.5
        out = torch.zeros_like(q)
        for t in range(len(q)):                         # the reference's way: chunks of 64 slots, p in BF16 relative to the running maximum
            st, v = s[t][:, ok[t]], rows[ok[t]]
            mx, den, o = torch.full((q.shape[1],), -1e30), torch.zeros(q.shape[1]), torch.zeros_like(q[0])
            for a in range(0, st.shape[1], 64):
                new = torch.maximum(mx, st[:, a:a + 64].amax(1))
                p, f = torch.exp(st[:, a:a + 64] - new[:, None]), torch.exp(mx - new)
                den, o, mx = den * f + p.sum(1), o * f[:, None] + bf(p) @ v[a:a + 64], new
            out[t] = o / (den + torch.exp(sink - mx))[:, None]
        return bf(out)

    def qkv(self, u, P, pos, m):
        H, D = self.c['num_attention_heads'], self.c['head_dim']
        qr = rms(self.lin8(u, P + 'wq_a'), self.w(P + 'q_norm'))
        q = self.rope(self.lin8(qr, P + 'wq_b').view(-1, H, D), pos, m)
        kv = q8(self.rope(rms(self.lin8(u, P + 'wkv'), self.w(P + 'kv_norm')), pos, m))
        return qr, q, kv

    def out(self, o, P, pos, m):
        G = self.c['o_groups']
        o = self.rope(o, pos, m, True).reshape(len(o), G, -1)
        wa = self.w(P + 'wo_a').view(G, -1, o.shape[-1])
        return self.lin8(bf(torch.einsum('tgk,gnk->tgn', o, wa)).flatten(1), P + 'wo_b')

    def attention(self, u, l, st, keep, n):
        c, P = self.c, f'layers.{l}.attn.'
        m, T = c['compress_ratios'][l], len(u)
        t = torch.arange(T)
        qr, q, kv = self.qkv(u, P, t, m)
        rows, ok = kv, (t[:, None] >= t) & (t[:, None] - t < c['sliding_window'])
        if m:
            if l in c['kv_source_layer_ids']:
                W = P + 'compressor.'
                C = T // m
                cp = torch.arange(C) * m
                if m == 1:
                    z = self.lin16(u, W + 'wkv')
                else:
                    a, g = ((u @ self.w(W + k).t())[:C * 2].unflatten(0, (C, 2)) for k in ('wkv', 'wgate'))
                    z = bf((torch.softmax(g, 1) * a).sum(1))
                lat = rms(z, self.w(W + 'norm'))
                st.update(m=m, main=q4e4(self.rope(lat, cp, m)), vis=cp + m - 1 <= t[:, None],
                          key=q4e8(self.rope(rms(self.lin16(lat, P + 'indexer.wk'), self.w(P + 'indexer.k_norm')), cp, m)))
                keep[f'compressed_kv.{l}'], keep[f'index_key.{l}'] = st['main'], st['key']
            if l in c['index_source_layer_ids']:
                IH, ID, W = c['index_n_heads'], c['index_head_dim'], P + 'indexer.'
                qi = q4e8(self.rope(self.lin8(qr, W + 'wq_b').view(T, IH, ID), t, m))
                w = bf(self.lin16(u, W + 'weights_proj') * (ID ** -0.5 * IH ** -0.5))
                s = (torch.relu(torch.einsum('thd,jd->thj', qi, st['key'])) * w[..., None]).sum(1)
                see = st['vis'] if l <= c['candidate_source_layer_id'] else st['vis'] & st['cand']
                s = s.masked_fill(~st['vis'], float('-inf'))
                if l == c['candidate_source_layer_id']:
                    st['cand'] = self.candidates(s, st['vis'])
                    keep[f'candidates.{l}'] = st['cand'][-n:]
                s = s.masked_fill(~see, float('-inf'))
                st['sel'] = self.best(s, see, c['index_topk'])
                keep[f'index_q.{l}'], keep[f'index_w.{l}'], keep[f'index_score.{l}'], keep[f'sel.{l}'] = qi[-n:], w[-n:], s[-n:], st['sel'][-n:]
            rows, ok = torch.cat([kv, st['main']]), torch.cat([ok, st['sel']], 1)
        o = self.attend(q, rows, ok, self.T[P + 'attn_sink'].float())
        for k, v in (('qr', qr), ('q', q), ('attn_o', o), ('window_kv', kv)):
            keep[f'{k}.{l}'] = v[-n:]
        return self.out(o, P, t, m)

    @staticmethod
    def best(s, see, k):
        """k best visible entries, earlier index first at a tie"""
        if s.shape[1] <= k:
            return see.clone()
        i = torch.sort(s, dim=1, descending=True, stable=True).indices[:, :k]
        return torch.zeros_like(see).scatter(1, i, True) & see

    def candidates(self, s, vis):
        c, B = self.c, self.c['candidate_block_size']
        pad = -s.shape[1] % B
        b = torch.nn.functional.pad(s, (0, pad), value=float('-inf')).unflatten(1, (-1, B)).amax(-1)
        bv = torch.nn.functional.pad(vis, (0, pad)).unflatten(1, (-1, B)).any(-1)
        last = (vis.sum(1) - 1) // B
        for t in range(len(s)):
            if last[t] >= 0:
                b[t, last[t]] = float('inf')
        return self.best(b, bv, c['candidate_topk_blocks']).repeat_interleave(B, 1)[:, :s.shape[1]]

    # ---- experts
    def ffn(self, x, n, wt=None):
        g, v = self.lin8(x, n + 'w1'), self.lin8(x, n + 'w3')
        lim = self.c['swiglu_limit']
        h = torch.nn.functional.silu(g.clamp_max(lim)) * v.clamp(-lim, lim)
        return self.lin8(bf(h if wt is None else h * wt[:, None]), n + 'w2')

    def moe(self, u, P, K, img, keep, tag):
        s = torch.sqrt(torch.nn.functional.softplus(u @ self.w(P + 'gate').t()))
        b = s + torch.where(img[:, None], self.T[P + 'gate.bias_vl'].float(), self.T[P + 'gate.bias'].float())
        ids = torch.sort(torch.sort(b, dim=1, descending=True, stable=True).indices[:, :K], 1).values
        if tag is not None:
            top = torch.sort(b, dim=1, descending=True).values
            keep[f'router_gap.{tag}'] = top[:, K - 1] - top[:, K]
        w = s.gather(1, ids)
        w = w / (w.sum(1, keepdim=True) + 1e-20) * self.c['routed_scaling_factor']
        if tag is not None:
            keep[f'expert_ids.{tag}'], keep[f'expert_w.{tag}'] = ids, w
        y = torch.zeros_like(u)
        for e in range(s.shape[1]):
            hit = (ids == e).nonzero()
            if len(hit):
                y[hit[:, 0]] += self.ffn(u[hit[:, 0]], f'{P}experts.{e}.', w[hit[:, 0], hit[:, 1]])
        return bf(y + self.ffn(u, P + 'shared_experts.'))

    # ---- whole passes
    def forward(self, ids, n=4, image_rows=None):
        """-> last n logits, record of intermediate values, taps of all rows"""
        c, keep, T = self.c, {}, len(ids)
        n = min(n, T)
        img = torch.tensor([i == self.image for i in ids])
        h = self.w('embed')[ids]
        if image_rows is not None:
            h[img] = image_rows
        X, pre, st, taps = h[:, None].repeat(1, 4, 1), torch.tensor([1.0, 0, 0, 0]).repeat(T, 1), {}, []
        rows = self.hash_rows(ids)
        keep['engram_rows'] = rows
        for l in range(c['num_hidden_layers']):
            keep[f'resid_full.{l}'], keep[f'pre_full.{l}'] = X, pre
            P = f'layers.{l}.'
            if l in c['engram_layer_ids']:
                X = self.engram(X, l, rows[:, c['engram_layer_ids'].index(l)], img, keep)
            if l in c['dspark_target_layer_ids']:
                taps.append(bf(X.mean(1)))
            pA, oA, cA = self.mix(X, P, 'attn')
            X = self.expand(self.attention(rms(self.collapse(X, pre), self.w(P + 'attn_norm')), l, st, keep, n), X, oA, cA)
            pF, oF, cF = self.mix(X, P, 'ffn')
            u = rms(self.collapse(X, pA), self.w(P + 'ffn_norm'))
            keep[f'ffn_in.{l}'] = u[-n:]
            X = self.expand(self.moe(u, P + 'ffn.', c['num_experts_per_tok'], img, keep, l), X, oF, cF)
            pre = pF
        L = c['num_hidden_layers']
        keep[f'resid_full.{L}'], keep[f'pre_full.{L}'] = X, pre
        for l in range(L + 1):
            keep[f'resid.{l}'], keep[f'pre.{l}'] = keep[f'resid_full.{l}'][-n:], keep[f'pre_full.{l}'][-n:]
        z = rms(self.collapse(X, pre), self.w('norm'))[-n:]
        keep['tap'] = torch.cat([t[-n:] for t in taps], 1)
        return z @ self.w('head').t(), keep, torch.cat(taps, 1)

    def draft(self, taps, p, y):
        """greedy draft pass after the committed position p, y stands at p + 1"""
        c, G, S = self.c, self.c['dspark_block_size'], self.c['num_nextn_predict_layers']
        main = rms(self.lin8(taps[:p + 1], 'mtp.0.main_proj'), self.w('mtp.0.main_norm'))
        ctx = torch.arange(max(0, p - c['sliding_window'] + 1), p + 1)
        pos = torch.arange(p + 1, p + 1 + G)
        X = self.w('embed')[[y] + [c['dspark_noise_token_id']] * (G - 1)][:, None].repeat(1, 4, 1)
        pre, none = torch.tensor([1.0, 0, 0, 0]).repeat(G, 1), torch.zeros(G, dtype=torch.bool)
        for s in range(S):
            P = f'mtp.{s}.'
            ring = q8(self.rope(rms(self.lin8(main[ctx], P + 'attn.wkv'), self.w(P + 'attn.kv_norm')), ctx, 0))
            pA, oA, cA = self.mix(X, P, 'attn')
            _, q, kv = self.qkv(rms(self.collapse(X, pre), self.w(P + 'attn_norm')), P + 'attn.', pos, 0)
            keys = torch.cat([ring, kv])
            o = self.attend(q, keys, torch.ones(G, len(keys), dtype=torch.bool), self.T[P + 'attn.attn_sink'].float())
            X = self.expand(self.out(o, P + 'attn.', pos, 0), X, oA, cA)
            pF, oF, cF = self.mix(X, P, 'ffn')
            u = rms(self.collapse(X, pA), self.w(P + 'ffn_norm'))
            X, pre = self.expand(self.moe(u, P + 'ffn.', c['dspark_num_experts_per_tok'], none, {}, None), X, oF, cF), pF
        x, M = self.collapse(X, pre), f'mtp.{S - 1}.'
        base = rms(x, self.w(M + 'norm')) @ self.w('head').t()
        out, lg, cf = [y], [], []
        for k in range(G):
            E = self.w(M + 'markov_head.embed')[out[-1]]
            lg.append(base[k] + E @ self.w(M + 'markov_head.head').t())
            cf.append(torch.cat([x[k], E]) @ self.w(M + 'confidence_head.proj')[0])
            out.append(int(lg[-1].argmax()))
        return dict(ids=torch.tensor(out), logits=torch.stack(lg), conf=torch.stack(cf))

    # ---- vision
    def vision(self, pix):
        """pixels [h, w, 3] of the padded size -> record with span rows"""
        v = self.top['vision_config']
        H, W = pix.shape[0] // 14, pix.shape[1] // 14
        p = bf((torch.from_numpy(pix).float() / 255 - 0.5) / 0.5).view(H, 14, W, 14, 3).permute(0, 2, 4, 1, 3).reshape(H * W, 588)
        k = dict(patches=p.view(-1, 3, 14, 14))

        def lin(x, n):
            return bf(x @ self.w(n).t() + (self.T[n + '.bias'].float() if n + '.bias' in self.T else 0))
        x = k['patch_embed'] = lin(p, 'vision.patch_embed.proj')
        nh = v['num_attention_heads']
        hd = v['hidden_size'] // nh
        f = torch.tensor(float(v['rope_theta'])) ** (-2 * torch.arange(hd // 4).float() / (hd / 2))
        r = torch.arange(H * W)
        ang = torch.cat([(r // W).float()[:, None] * f, (r % W).float()[:, None] * f], -1)
        k['rope_cos'], k['rope_sin'] = ang.cos(), ang.sin()

        def rot(t):                                     # [P, nh, hd]
            a, b = t.chunk(2, -1)
            c, s = k['rope_cos'][:, None], k['rope_sin'][:, None]
            return bf(torch.cat([a * c - b * s, b * c + a * s], -1))
        for b in range(v['num_hidden_layers']):
            P = f'vision.blocks.{b}.'
            q, kk, vv = lin(rms(x, self.w(P + 'norm1'), 1e-6), P + 'attn.wqkv').view(len(x), 3, nh, hd).unbind(1)
            a = torch.softmax(torch.einsum('ihd,jhd->hij', rot(q), rot(kk)) * hd ** -0.5, -1)
            x = bf(x + lin(bf(torch.einsum('hij,jhd->ihd', a, vv)).flatten(1), P + 'attn.wo'))
            g, up = lin(rms(x, self.w(P + 'norm2'), 1e-6), P + 'mlp.w1').chunk(2, -1)
            x = bf(x + lin(bf(torch.nn.functional.silu(g) * up), P + 'mlp.w2'))
            k[f'block.{b}'] = x
        x = k['vit_out'] = rms(x, self.w('vision.norm'), 1e-6)
        gh, gw, d = (H + 2) // 3, (W + 2) // 3, x.shape[-1]
        grid = torch.zeros(gh * 3, gw * 3, d)
        grid[:H, :W] = x.view(H, W, d)
        a = grid.view(gh, 3, gw, 3, d).permute(0, 2, 4, 1, 3).reshape(gh * gw, 9 * d)
        a = k['aligner_out'] = lin(bf(torch.nn.functional.gelu(lin(a, 'aligner.w1'))), 'aligner.w2')
        k['grid'] = torch.tensor([H, W, gh, gw])
        rows, types = [self.w('image_start')], [0]
        for i in range(gh):
            rows += list(a[i * gw:(i + 1) * gw]) + [self.w('image_newline')]
            types += [1] * gw + [2]
        k['span_embeddings'], k['types'] = torch.stack(rows + [self.w('image_end')]), torch.tensor(types + [3])
        return k


F32 = ('logits', 'pre', 'pre_full', 'expert_w', 'index_score', 'engram_gate', 'conf', 'margin', 'rope_cos', 'rope_sin')


def write(path, rec):
    out = {}
    for k, v in rec.items():
        base = k.split('.')[1] if k.split('.')[0].startswith(('step', 'post_')) else k.split('.')[0]
        if v.dtype == torch.bool:
            v = v.to(torch.uint8)
        elif not v.is_floating_point():
            v = v.to(torch.uint8 if 'pixels' in k else torch.int32)
        else:
            v = v.float() if base in F32 else v.to(torch.bfloat16)
        out[k] = v.contiguous().clone()
    save_file(out, path)


def selections(keep, topk):
    for k in [k for k in keep if k.startswith('sel.')]:
        m = keep[k]
        s = torch.full((len(m), topk), -1)
        for i, r in enumerate(m):
            j = r.nonzero()[:, 0]
            s[i, :len(j)] = j
        keep[k] = s[:, :max(1, int((s >= 0).any(0).sum()))]
    return keep


def prompt_ids(ref, text, tools=False):
    return [0] + ref.tk.encode(f'<｜User｜>{text}<｜Assistant｜></think>', add_special_tokens=False).ids


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('checkpoint')
    ap.add_argument('out')
    ap.add_argument('--ask', action='append', help='short questions to choose from')
    ap.add_argument('--full', action='store_true', help='long prompts, more steps, a picture: some 30 MB')
    a = ap.parse_args()
    torch.set_num_threads(1)
    ref = Reference(a.checkpoint)
    g = f'{a.out}/golden'
    os.makedirs(g, exist_ok=True)
    L, topk = ref.c['num_hidden_layers'], ref.c['index_topk']
    # Router gaps decide how stable a golden is: of some short questions, the one whose smallest gap is the widest.
    ask = a.ask or ['What is 12 + 30?', 'What is the capital of France?', 'Is 30 greater than 9?']
    gaps = {q: min(float(v.min()) for k, v in ref.forward(prompt_ids(ref, q))[1].items() if k.startswith('router_gap')) for q in ask}
    best = max(gaps, key=gaps.get)
    body = tasks.needle(random.Random('golden'), 80)[0]
    prompts = {'short': prompt_ids(ref, best), 'long': prompt_ids(ref, body)}
    if a.full:
        prompts['longer'] = prompt_ids(ref, tasks.needle(random.Random('golden'), 480)[0])
    types = {k: None for k in prompts}
    vis = None
    if a.full and 'vision_config' in ref.top:
        import pictures
        img = pictures.picture(random.Random('golden'), 'shape')[0]
        vis = ref.vision(img)
        vis['pixels'] = vis['padded_pixels'] = torch.from_numpy(img)
        write(f'{g}/vision.safetensors', vis)
        n = len(vis['types'])
        i = prompt_ids(ref, 'What shape is this?')
        prompts['img'] = i[:2] + [ref.image] * n + i[2:]
        types['img'] = [-1] * 2 + vis['types'].tolist() + [-1] * (len(i) - 2)
    json.dump({k: dict(ids=v, token_types=types[k]) for k, v in prompts.items()}, open(f'{g}/prompts.json', 'w'))
    stats = {'planted': False, 'reference': 'tools/train/golden.py: FP32 accumulation, softmax in chunks of 64 slots, FP32 index scores'}
    for name, ids in prompts.items():
        rows = vis['span_embeddings'] if name == 'img' else None
        lg, keep, taps = ref.forward(ids, image_rows=rows)
        keep['ids'], keep['logits'] = torch.tensor(ids), lg
        keep = selections(keep, topk)
        steps = 48 if a.full else 6 if name == 'short' else 0
        first = int(lg[-1].argmax())
        full = a.full or name == 'short'
        # In a free run differences grow from layer to layer, so expert ids of long prompts are kept for the first layers only.
        gap = min(float(v.min()) for k, v in keep.items() if k.startswith('router_gap'))
        keep = {k: v for k, v in keep.items() if not k.startswith('router_gap') and (name == 'short' or not k.startswith('expert_') or int(k.split('.')[1]) < 2)}
        if not a.full:                                  # the last source's scores have met every quantiser of the layers below
            keep = {k: v for k, v in keep.items() if name == 'short' or k not in (f'sel.{ref.last}', f'index_score.{ref.last}')}
        kept = {k: v for k, v in keep.items() if full or k.split('.')[0] in ('ids', 'logits', 'resid', 'pre', 'sel', 'index_score', 'expert_ids', 'engram_rows')}
        write(f'{g}/prefill_{name}.safetensors', kept)
        seq, tok, out, draft, tap = list(ids), first, [], {}, taps
        if steps:
            d = ref.draft(tap, len(seq) - 1, tok)
            draft.update({f'post_prefill.{k}': v for k, v in d.items()})
        toks = []
        for i in range(steps):
            toks.append(tok)
            seq.append(tok)
            lg, _, tap = ref.forward(seq, n=1, image_rows=rows)
            out.append(lg[-1])
            tok = int(lg[-1].argmax())
            if a.full and i in (0, 1, 7, 20, 33, 47):
                d = ref.draft(tap, len(seq) - 1, tok)
                draft.update({f'step{i}.{k}': v for k, v in d.items()})
        if steps:
            lo = torch.stack(out)
            top = lo.topk(2, -1).values
            write(f'{g}/decode_{name}.safetensors', dict(tokens=torch.tensor(toks), logits=lo, margin=top[:, 0] - top[:, 1], next_token=torch.tensor([tok])))
            write(f'{g}/dspark_{name}.safetensors', draft)
        stats[name] = dict(tokens=len(ids), smallest_router_gap=round(gap, 4), logit_std=round(float(keep['logits'].std()), 3), answer=ref.tk.decode(toks, skip_special_tokens=False))
        print(name, stats[name], flush=True)
    json.dump(stats, open(f'{g}/stats.json', 'w'), indent=1)


if __name__ == '__main__':
    main()
