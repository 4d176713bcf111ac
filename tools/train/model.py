"""Trainable DeepSeek-V4.1 model. Sub-modules carry the official tensor names, so that export is a walk over named parameters.

All official quantisers are built in, straight through: weights, window and compressed rows, index queries and keys, and the
inputs of quantised products. Rows are flat: T = B * S tokens; `start` is the row index of each token's document.
"""
import json
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import kernels as K

EPS = 1e-20
EXACT = [False]                                         # exact top-k (evaluation) instead of bisection
AQ, WQ = [True], [True]
JIT, JIT_ON = {}, [False]


def jit(f):
    """pointwise pieces worth compiling; whole blocks take minutes to compile"""
    JIT[f.__name__] = f

    def g(*a):
        return (JIT[f.__name__] if JIT_ON[0] else f)(*a)
    return g


def compile_pieces():
    import torch._dynamo as dynamo
    dynamo.config.recompile_limit = 64
    for n in list(JIT):
        JIT[n] = torch.compile(JIT[n], dynamic=False)
    JIT_ON[0] = True


def cdt(x):
    return torch.bfloat16 if x.is_cuda else torch.float32


def actq(x):
    return K.aq(x, 'q8') if AQ[0] else x


def wcast(w, kind, x):
    return K.wq(w, kind if WQ[0] else 0, x.dtype)


class W(nn.Module):
    """A named weight. kind: 8 = fp8 32x32 tiles, 4 = fp4 groups of 32, 0 = bf16."""
    def __init__(self, *shape, kind=8, std=None):
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.randn(*shape) * (std if std is not None else 0.6 / math.sqrt(shape[-1])))

    def forward(self, x, quantised=False):
        return F.linear(x if quantised or not self.kind else actq(x), wcast(self.weight, self.kind, x))


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return rms(x, self.weight)


@jit
def rms(x, w):
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * w).to(x.dtype)


def rope_freqs(c, ratio):
    n = c['qk_rope_head_dim']
    i = torch.arange(0, n, 2).float() / n
    if ratio == 0:
        return 1.0 / c['rope_theta'] ** i
    th = c['compress_rope_theta']
    f = 1.0 / th ** i
    fac, bf, bs, orig = c['yarn']

    def corr(r):
        return n * math.log(orig / (r * 2 * math.pi)) / (2 * math.log(th))
    lo, hi = max(math.floor(corr(bf)), 0), min(math.ceil(corr(bs)), n - 1)
    ramp = ((torch.arange(n // 2).float() - lo) / max(hi - lo, 1e-3)).clamp(0, 1)
    return f / fac * ramp + f * (1 - ramp)


def _rope(x, c, s):
    n = c.shape[-1] * 2
    a, b = x[..., :-n], x[..., -n:].float().unflatten(-1, (-1, 2))
    y = torch.stack([b[..., 0] * c - b[..., 1] * s, b[..., 0] * s + b[..., 1] * c], -1).flatten(-2)
    return torch.cat([a, y.to(x.dtype)], -1)


@jit
def rope(x, c, s):
    return _rope(x, c, s)


@jit
def rope_heads(x, c, s):
    """x [T, H, D]"""
    return _rope(x, c[:, None], s[:, None])


@jit
def norm_rope(x, w, c, s):
    v = x.float()
    return _rope((v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * w).to(x.dtype), c, s)


# ---------------------------------------------------------------- mHC
def make_hyper(block, site, d, idx):
    n = 4
    base = torch.zeros(n * n + 2 * n)
    base[:n] = -1.5
    base[idx % n] = 1.5
    base[2 * n:] = (torch.eye(n) * 3.0).flatten()
    block.register_parameter(f'hc_{site}_fn', nn.Parameter(torch.randn(n * n + 2 * n, n * d) / math.sqrt(n * d)))
    block.register_parameter(f'hc_{site}_base', nn.Parameter(base))
    block.register_parameter(f'hc_{site}_scale', nn.Parameter(torch.full((3,), 0.05)))


@jit
def hc_gates(X, t, base, scale):
    t = t * torch.rsqrt(X.flatten(-2).float().square().mean(-1, keepdim=True) + EPS)
    return (torch.sigmoid(t[..., :4] * scale[0] + base[:4]) + 1e-6,
            2 * torch.sigmoid(t[..., 4:8] * scale[1] + base[4:8]), t[..., 8:] * scale[2] + base[8:])


def hc_mix(X, fn, base, scale):
    """X [T, 4, d]"""
    pre, post, m = hc_gates(X, K.mm32(X.flatten(-2), fn), base, scale)
    return pre, post, K.sinkhorn(m.unflatten(-1, (4, 4)))


@jit
def hc_collapse(X, pre):
    return (X.float() * pre[..., None]).sum(-2).to(X.dtype)


@jit
def hc_collapse_norm(X, pre, w):
    v = (X.float() * pre[..., None]).sum(-2).to(X.dtype).float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * w).to(X.dtype)


@jit
def hc_expand(y, X, post, M):
    Xf = X.float()
    mixed = sum(M[..., j, :, None] * Xf[..., j, None, :] for j in range(4))
    return (post[..., None] * y.float()[..., None, :] + mixed).to(X.dtype)


# ---------------------------------------------------------------- selection
@jit
def bisect(score, vis, k):
    """k best visible entries a row; ties at the border may stay"""
    s = torch.where(vis, score, -1e30)
    hi = s.amax(-1, keepdim=True) + 1e-3
    lo = torch.minimum(torch.where(vis, score, 1e30).amin(-1, keepdim=True), hi)
    for _ in range(14):
        mid = (lo + hi) * 0.5
        ok = (s >= mid).sum(-1, keepdim=True) >= k
        lo, hi = torch.where(ok, mid, lo), torch.where(ok, hi, mid)
    return vis & (s >= lo)


def select(score, vis, k):
    if k >= vis.shape[-1]:
        return vis
    if EXACT[0]:
        v, i = torch.topk(score.masked_fill(~vis, float('-inf')), k, -1)
        return torch.zeros_like(vis).scatter(-1, i, v > float('-inf'))
    return bisect(score, vis, k)


def candidates(score, vis, bs, kb):
    b = score.masked_fill(~vis, float('-inf')).unflatten(-1, (-1, bs)).amax(-1)
    bv = vis.unflatten(-1, (-1, bs)).any(-1)
    nxt = F.pad(bv[..., 1:], (0, 1))
    b = torch.where(bv & ~nxt, b.amax(-1, keepdim=True) + 1, b)          # the newest block is always kept
    return select(b, bv, kb).repeat_interleave(bs, -1)


@jit
def idx_combine(s, w):
    return (torch.relu(s).float() * w.float()[..., None]).sum(2)


def index_loss(score, sel, tgt):
    lp = torch.log_softmax(score.masked_fill(~sel, -1e30), -1)
    t = torch.where(sel, tgt, 0.0)
    t = t / (t.sum(-1, keepdim=True) + 1e-6)
    return -(t * torch.where(sel, lp, 0.0)).sum(-1).mean()


@jit
def pool2(a, g):
    """a, g [T/2, 2, D] FP32"""
    return (torch.softmax(g, 1) * a).sum(1)


class Compressor(nn.Module):
    def __init__(self, c, ratio):
        super().__init__()
        self.ratio = ratio
        self.wkv = W(c['head_dim'], c['hidden_size'], kind=0)
        if ratio == 2:
            self.wgate = W(c['head_dim'], c['hidden_size'], kind=0)
        self.norm = Norm(c['head_dim'])

    def forward(self, u):
        if self.ratio == 1:
            return self.norm(self.wkv(u))
        a, g = (K.mm32(u, w.weight).unflatten(0, (-1, 2)) for w in (self.wkv, self.wgate))
        return self.norm(pool2(a, g).to(u.dtype))


class Indexer(nn.Module):
    def __init__(self, c, keys):
        super().__init__()
        self.h, self.d = c['index_n_heads'], c['index_head_dim']
        self.wq_b = W(self.h * self.d, c['q_lora_rank'])
        self.weights_proj = W(self.h, c['hidden_size'], kind=0)
        if keys:
            self.wk = W(self.d, c['head_dim'], kind=0)
            self.k_norm = Norm(self.d)

    def keys(self, lat, cs):
        return K.aq(norm_rope(self.wk(lat), self.k_norm.weight, *cs), 'q4e8')

    def scores(self, qr, u, key, cs):
        """qr, u [B, R, .]; key [B, C, d] -> [B, R, C]"""
        B, R, _ = u.shape
        qi = K.aq(_rope(self.wq_b(qr).view(B, R, self.h, self.d), cs[0][:, :, None], cs[1][:, :, None]), 'q4e8')
        w = self.weights_proj(u) * (self.d ** -0.5 * self.h ** -0.5)
        s = (qi.reshape(B, R * self.h, self.d) @ key.transpose(1, 2)).view(B, R, self.h, -1)
        return idx_combine(s, w)


class Attention(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        d, self.H, self.D, self.G = c['hidden_size'], c['num_attention_heads'], c['head_dim'], c['o_groups']
        self.ratio = c['compress_ratios'][i]
        self.wq_a, self.q_norm = W(c['q_lora_rank'], d), Norm(c['q_lora_rank'])
        self.wq_b = W(self.H * self.D, c['q_lora_rank'])
        self.wkv, self.kv_norm = W(self.D, d), Norm(self.D)
        self.attn_sink = nn.Parameter(torch.zeros(self.H))
        self.wo_a = W(self.G * c['o_lora_rank'], self.H * self.D // self.G)
        self.wo_b = W(d, self.G * c['o_lora_rank'], std=0.2 / math.sqrt(d))
        self.full, self.idx = i in c['kv_source_layer_ids'], i in c['index_source_layer_ids']
        self.cand_src = i == c['candidate_source_layer_id']
        self.reindex = self.idx and not self.full
        self.k, self.kb, self.bs = c['index_topk'], c['candidate_topk_blocks'], c['candidate_block_size']
        if self.full:
            self.compressor = Compressor(c, self.ratio)
        if self.idx:
            self.indexer = Indexer(c, self.full)

    def qkv(self, u, cs):
        """u [T, d] -> qr, q [T, H, D], kv [T, D]"""
        uq = actq(u)
        qr = self.q_norm(self.wq_a(uq, True))
        q = rope_heads(self.wq_b(qr).view(-1, self.H, self.D), *cs)
        return qr, q, K.aq(norm_rope(self.wkv(uq, True), self.kv_norm.weight, *cs), 'q8')

    def out(self, o, cs):
        """o [T, H, D] -> [T, d]"""
        o = rope_heads(o, cs[0], -cs[1]).reshape(o.shape[0], self.G, -1)
        wa = wcast(self.wo_a.weight, 8, o).view(self.G, -1, o.shape[-1])
        return self.wo_b(torch.bmm(o.transpose(0, 1), wa.transpose(1, 2)).transpose(0, 1).flatten(1))

    def forward(self, u, ctx, st):
        """st: kc, key, sel of the current group; returns out, st, index-loss triple or None, tgt or None"""
        cs = ctx['cs'][1 if self.ratio else 0]
        B, S, R = ctx['B'], ctx['S'], ctx['index_rows']
        qr, q, kv = self.qkv(u, cs)
        q4, kv3 = q.view(B, S, self.H, self.D), kv.view(B, S, self.D)
        if not self.ratio:
            o, _ = K.attend(q4, kv3, None, self.attn_sink, ctx['start'], None, 0)
            return self.out(o.reshape(B * S, self.H, self.D), cs), st, None, None
        m = self.ratio
        if self.full:
            lat = self.compressor(u)
            cc = [t.view(B, S, -1)[:, ::m].reshape(B * S // m, -1) for t in cs]
            st = dict(kc=K.aq(rope(lat, *cc), 'q4e4').view(B, S // m, -1), key=self.indexer.keys(lat.detach(), cc).view(B, S // m, -1), sel=None, cand=None)
        score = None
        if self.idx:
            u3, qr3, cs3 = u.detach().view(B, S, -1), qr.detach().view(B, S, -1), [t.view(B, S, -1) for t in cs]
            if ctx['sparse']:
                with torch.no_grad():
                    s = self.indexer.scores(qr3, u3, st['key'], cs3)
                    st = dict(st, sel=select(s, ctx['vis'][m] & st['cand'] if self.reindex else ctx['vis'][m], self.k))
                    if self.cand_src:
                        st['cand'] = candidates(s, ctx['vis'][m], self.bs, self.kb)
            if R is not None:
                sub = self.indexer.scores(qr3[:, R], u3[:, R], st['key'], [t[:, R] for t in cs3])
                score = [sub, ctx['vis'][m][:, R] if st['sel'] is None else st['sel'][:, R]]
        o, p = K.attend(q4, kv3, st['kc'], self.attn_sink, ctx['start'], st['sel'], m)
        tgt = None if R is None else p.view(B, S, self.H, -1)[:, R].float().sum(2)
        return self.out(o.reshape(B * S, self.H, self.D), cs), st, score, tgt


# ---------------------------------------------------------------- MoE
@jit
def swiglu(g, v, wd):
    """wd [T, E] routing weights, applied before w2"""
    h = F.silu(g.float().clamp_max(10.0)) * v.float().clamp(-10.0, 10.0)
    E = wd.shape[-1]
    return (h.unflatten(-1, (E, h.shape[-1] // E)) * wd.float()[..., None]).flatten(-2).to(g.dtype)


class Experts(nn.Module):
    def __init__(self, d, n, E):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(E, n, d) * (0.6 / math.sqrt(d)))
        self.w3 = nn.Parameter(torch.randn(E, n, d) * (0.6 / math.sqrt(d)))
        self.w2 = nn.Parameter(torch.randn(E, d, n) * (0.2 / math.sqrt(n)))


@jit
def route(lg, bias, k_scale):
    s = torch.sqrt(F.softplus(lg))
    return s, s.detach() + bias


class MoE(nn.Module):
    """all experts of a layer in one product, with weight zero where not chosen: the same sums, fast at this size"""
    def __init__(self, c, E, k):
        super().__init__()
        d, n = c['hidden_size'], c['moe_intermediate_size']
        self.k, self.scale = k, c['routed_scaling_factor']
        self.gate = W(E, d, kind=0, std=0.5 / math.sqrt(d))
        self.gate.bias = nn.Parameter(torch.zeros(E), requires_grad=False)
        self.gate.bias_vl = nn.Parameter(torch.zeros(E), requires_grad=False)
        self.experts, self.shared_experts = Experts(d, n, E), Experts(d, n, 1)

    def forward(self, u, isimg=None):
        """u [T, d]; -> y, share of tokens per expert for text and for images [2, E]"""
        s = torch.sqrt(F.softplus(K.mm32(u, self.gate.weight)))
        with torch.no_grad():
            b = self.gate.bias if isimg is None else torch.where(isimg[:, None], self.gate.bias_vl, self.gate.bias)
            m = (s + b >= torch.topk(s + b, self.k, -1).values[..., -1:]).float()
            if isimg is None:
                load = torch.stack([m.mean(0), torch.zeros_like(m[0])])
            else:
                im = isimg.float()
                load = torch.stack([(m * (1 - im)[:, None]).sum(0) / ((1 - im).sum() + 1), (m * im[:, None]).sum(0) / (im.sum() + 1)])
        w = s * m
        w = self.scale * w / (w.sum(-1, keepdim=True) + EPS)
        w = torch.cat([w, torch.ones_like(w[:, :1])], -1)
        x = actq(u)
        g, v = (F.linear(x, torch.cat([wcast(getattr(self.experts, n), 4, x).flatten(0, 1), wcast(getattr(self.shared_experts, n), 8, x).flatten(0, 1)]))
                for n in ('w1', 'w3'))
        h = actq(swiglu(g, v, w))
        w2 = torch.cat([wcast(self.experts.w2, 4, x).permute(1, 0, 2).flatten(1), wcast(self.shared_experts.w2, 8, x)[0]], 1)
        return F.linear(h, w2), load


# ---------------------------------------------------------------- Engram
class Engram(nn.Module):
    def __init__(self, c, rows):
        super().__init__()
        d, n, hd = c['hidden_size'], c['hc_mult'], c['engram_head_dim']
        self.embed = W(rows, hd, kind=0, std=0.3)
        self.wkv = W((n + 1) * d, hd * c['engram_n_heads'] * (c['engram_max_ngram_size'] - 1))
        self.q_weight = nn.Parameter(torch.ones(n, d))
        self.k_weight = nn.Parameter(torch.ones(n, d))

    def forward(self, X, rows, isimg):
        e = K.aq(F.embedding(rows, self.embed.weight), 'q8').flatten(-2).to(X.dtype)
        return engram_mix(X, self.wkv(e), self.q_weight, self.k_weight, isimg)


@jit
def engram_mix(X, kvv, qw, kw, isimg):
    d = X.shape[-1]
    kvv = kvv.float()
    key, val = kvv[..., :4 * d].unflatten(-1, (4, d)), kvv[..., None, 4 * d:]
    x = X.float()
    dot = (x * (qw * kw) * key).sum(-1)
    dot = dot * torch.rsqrt(x.square().mean(-1) + EPS) * torch.rsqrt(key.square().mean(-1) + EPS) * d ** -0.5
    gate = torch.sigmoid(torch.copysign(torch.sqrt(dot.abs().clamp_min(1e-6)), dot))
    gate = torch.where(isimg[:, None], 0.0, gate)
    return (x + gate[..., None] * val).to(X.dtype)


def make_hashes(c, token_map, compressed):
    """Engram constants by the official rule (numpy default_rng(10007 * layer), consecutive primes)."""
    half = ((2 ** 63 - 1) // compressed) // 2
    mult = [[int(v) * 2 + 1 for v in np.random.default_rng(10007 * L).integers(0, half, c['engram_max_ngram_size'])] for L in c['engram_layer_ids']]
    per = (c['engram_max_ngram_size'] - 1) * c['engram_n_heads']
    primes, n = [], c['engram_vocab_size']
    while len(primes) < per * len(c['engram_layer_ids']):
        if all(n % q for q in range(2, int(n ** 0.5) + 1)):
            primes.append(n)
        n += 1
    pr = [primes[i * per:(i + 1) * per] for i in range(len(c['engram_layer_ids']))]
    return dict(token_map=token_map, mult=mult, primes=pr, num_embeddings=[sum(p) for p in pr], compressed=compressed)


# ---------------------------------------------------------------- vision
class Linear(nn.Module):
    """weight [, bias], BF16"""
    def __init__(self, n, k, bias=True, std=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, k) * (std or 0.6 / math.sqrt(k)))
        if bias:
            self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype) if hasattr(self, 'bias') else None)


class VNorm(Norm):
    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, 1e-6).to(x.dtype)


class Bag(nn.Module):
    def __init__(self, **kw):
        super().__init__()
        for k, v in kw.items():
            setattr(self, k, v)


class Vision(nn.Module):
    def __init__(self, v):
        super().__init__()
        d, n = v['hidden_size'], v['intermediate_size']
        self.h = v['num_attention_heads']
        self.patch_embed = Bag(proj=Linear(d, 588))
        self.blocks = nn.ModuleList([Bag(norm1=VNorm(d), norm2=VNorm(d), attn=Bag(wqkv=Linear(3 * d, d), wo=Linear(d, d, std=0.2 / math.sqrt(d))),
                                         mlp=Bag(w1=Linear(2 * n, d, False), w2=Linear(d, n, False, 0.2 / math.sqrt(n)))) for _ in range(v['num_hidden_layers'])])
        self.norm = VNorm(d)
        hd = d // self.h
        self.register_buffer('freq', v['rope_theta'] ** (-2.0 * torch.arange(hd // 4).float() / (hd / 2)), persistent=False)

    def forward(self, pix, gh, gw):
        """pix [N, gh * gw, 588] uint8 -> [N, gh * gw, d]"""
        dt = cdt(pix)
        x = self.patch_embed.proj(((pix.float() / 255 - 0.5) / 0.5).to(dt))
        r = torch.arange(gh * gw, device=pix.device)
        ang = torch.cat([(r // gw)[:, None] * self.freq, (r % gw)[:, None] * self.freq], -1)
        c, s = torch.cos(ang), torch.sin(ang)

        def rot(t):                                     # [N, h, P, hd]
            a, b = t.float().chunk(2, -1)
            return torch.cat([a * c - b * s, b * c + a * s], -1).to(t.dtype)
        N, P, d = x.shape
        for b in self.blocks:
            q, k, v = b.attn.wqkv(b.norm1(x)).view(N, P, 3, self.h, -1).permute(2, 0, 3, 1, 4)
            a = torch.softmax((rot(q) @ rot(k).transpose(-1, -2)).float() * q.shape[-1] ** -0.5, -1).to(x.dtype) @ v
            x = x + b.attn.wo(a.transpose(1, 2).reshape(N, P, d))
            g, up = b.mlp.w1(b.norm2(x)).chunk(2, -1)
            x = x + b.mlp.w2((F.silu(g.float()) * up.float()).to(x.dtype))
        return self.norm(x)


class Aligner(nn.Module):
    def __init__(self, d, vd):
        super().__init__()
        self.w1, self.w2 = Linear(d, 9 * vd), Linear(d, d)

    def forward(self, x, gh, gw):
        """3 x 3 patches -> one row; feature index c * 9 + ky * 3 + kx"""
        N, _, d = x.shape
        x = x.view(N, gh // 3, 3, gw // 3, 3, d).permute(0, 1, 3, 5, 2, 4).reshape(N, gh * gw // 9, 9 * d)
        return self.w2(F.gelu(self.w1(x).float()).to(x.dtype))


# ---------------------------------------------------------------- blocks and model
class Block(nn.Module):
    def __init__(self, c, i, E, k):
        super().__init__()
        d = c['hidden_size']
        self.attn_norm, self.ffn_norm = Norm(d), Norm(d)
        self.attn = Attention(c, i)
        self.ffn = MoE(c, E, k)
        make_hyper(self, 'attn', d, 2 * i)
        make_hyper(self, 'ffn', d, 2 * i + 1)

    def ffn_half(self, X, pA, isimg):
        pF, oF, cF = hc_mix(X, self.hc_ffn_fn, self.hc_ffn_base, self.hc_ffn_scale)
        m, load = self.ffn(hc_collapse_norm(X, pA, self.ffn_norm.weight), isimg)
        return hc_expand(m, X, oF, cF), pF, load

    def forward(self, X, pre, ctx, st):
        pA, oA, cA = hc_mix(X, self.hc_attn_fn, self.hc_attn_base, self.hc_attn_scale)
        a, st, score, tgt = self.attn(hc_collapse_norm(X, pre, self.attn_norm.weight), ctx, st)
        X, pF, load = self.ffn_half(hc_expand(a, X, oA, cA), pA, ctx['isimg'])
        return X, pF, st, score, tgt, load


class DraftBlock(Block):
    """N anchors x 5 positions; every row of a block sees the window of main rows and the whole block"""
    def draft(self, X, pre, cs, mainkv, kmask, n):
        pA, oA, cA = hc_mix(X, self.hc_attn_fn, self.hc_attn_base, self.hc_attn_scale)
        at = self.attn
        _, q, kv = at.qkv(hc_collapse_norm(X, pre, self.attn_norm.weight), cs)
        N = X.shape[0] // n
        keys = torch.cat([mainkv, kv.view(N, n, -1)], 1)
        s = (q.reshape(N, n * at.H, at.D) @ keys.transpose(1, 2)).float() * at.D ** -0.5
        s = s.masked_fill(~kmask[:, None], float('-inf'))
        s = torch.cat([s, at.attn_sink.repeat(n)[None, :, None].expand(N, -1, 1)], -1)
        p = torch.softmax(s, -1)[..., :-1].to(q.dtype)
        o = (p @ keys).view(N * n, at.H, at.D)
        X, pF, _ = self.ffn_half(hc_expand(at.out(o, cs), X, oA, cA), pA, None)
        return X, pF


class Markov(nn.Module):
    def __init__(self, V, r):
        super().__init__()
        self.embed = W(V, r, kind=0, std=0.1)
        self.head = W(V, r, kind=0, std=0.1)


class Model(nn.Module):
    def __init__(self, c, vis, hashes, ids):
        super().__init__()
        self.c, self.v, self.hashes = c, vis, hashes
        self.image_id, self.noise_id = ids['image'], ids['noise']
        d, V, L = c['hidden_size'], c['vocab_size'], c['num_hidden_layers']
        self.embed = W(V, d, kind=0, std=0.5)
        self.head = W(V, d, kind=0, std=0.02)
        self.norm = Norm(d)
        for nm in ('image_start', 'image_end', 'image_newline'):
            self.register_parameter(nm, nn.Parameter(torch.randn(d) * 0.3))
        self.layers = nn.ModuleList([Block(c, i, c['n_routed_experts'], c['num_experts_per_tok']) for i in range(L)])
        for i in c['engram_layer_ids']:
            self.layers[i].engram = Engram(c, hashes['num_embeddings'][c['engram_layer_ids'].index(i)])
        self.mtp = nn.ModuleList([DraftBlock(c, L + s, c['dspark_n_routed_experts'], c['dspark_num_experts_per_tok']) for s in range(c['num_nextn_predict_layers'])])
        self.mtp[0].main_proj, self.mtp[0].main_norm = W(d, 3 * d), Norm(d)
        self.mtp[-1].norm = Norm(d)
        self.mtp[-1].markov_head = Markov(V, c['dspark_markov_rank'])
        self.mtp[-1].confidence_head = Bag(proj=W(1, d + c['dspark_markov_rank'], kind=0, std=0.01))
        self.vision, self.aligner = Vision(vis), Aligner(d, vis['hidden_size'])
        for r in (0, 1):
            self.register_buffer(f'freq{r}', rope_freqs(c, r), persistent=False)
        self.register_buffer('token_map', torch.tensor(hashes['token_map'], dtype=torch.int64), persistent=False)

    def spans(self, pix):
        """pixels of square pictures -> their 22 prompt rows [N, 22, d]"""
        g = 12
        x = self.aligner(self.vision(pix, g, g), g, g)
        N, _, d = x.shape
        x = x.view(N, 4, 4, d)
        nl = self.image_newline.to(x.dtype).expand(N, 4, 1, d)
        ends = [p.to(x.dtype).expand(N, 1, d) for p in (self.image_start, self.image_end)]
        return torch.cat([ends[0], torch.cat([x, nl], 2).view(N, 20, d), ends[1]], 1)

    def embed_rows(self, b):
        h = F.embedding(b['ids'].flatten(), self.embed.weight).to(cdt(b['ids']))
        if b.get('pix') is None:
            return h
        at = (b['at'][:, None].long() + torch.arange(22, device=h.device)).flatten()
        return F.pad(h, (0, 0, 0, 22)).index_copy(0, at.clamp_max(h.shape[0] + 21), self.spans(b['pix']).flatten(0, 1).to(h.dtype))[:-22]

    def engram_rows(self, ids, pos, isimg):
        c, h = self.c, self.hashes
        base = self.token_map[ids]
        pad = int(h['token_map'][2])
        T, bad = [], torch.zeros_like(isimg)
        for s in range(c['engram_max_ngram_size']):
            bad = bad | F.pad(isimg[:, :isimg.shape[1] - s], (s, 0), value=False) | (pos < s)
            T.append(torch.where(bad, pad, F.pad(base[:, :base.shape[1] - s], (s, 0), value=pad)))
        out = {}
        for li, L in enumerate(c['engram_layer_ids']):
            r, rows, off, pi = T[0] * h['mult'][li][0], [], 0, 0
            for s in range(1, c['engram_max_ngram_size']):
                r = r ^ (T[s] * h['mult'][li][s])
                for _ in range(c['engram_n_heads']):
                    p = h['primes'][li][pi]
                    rows.append(r % p + off)
                    off += p
                    pi += 1
            out[L] = torch.stack(rows, -1).flatten(0, 1)
        return out

    def context(self, b, sparse, index_rows):
        ids, start = b['ids'], b['start']
        B, S = ids.shape
        t = torch.arange(S, device=ids.device)
        pos = t[None] - start
        isimg = ids == self.image_id
        vis = {}
        if sparse or index_rows is not None:
            for m in (1, 2):
                j = torch.arange(S // m, device=ids.device) * m
                vis[m] = (j[None, None] + m - 1 <= t[None, :, None]) & (j[None, None] >= start[:, :, None])
        ang = [(pos.flatten()[:, None].float() * f) for f in (self.freq0, self.freq1)]
        return dict(B=B, S=S, start=start, pos=pos, isimg=isimg.flatten(), vis=vis, cs=[(torch.cos(a), torch.sin(a)) for a in ang], sparse=sparse,
                    index_rows=index_rows, rows=self.engram_rows(ids, pos, isimg))

    def backbone(self, b, sparse=False, index_rows=None, taps=False):
        """b: ids, start [B, S]; pix, at: pictures. -> z [T, d], loads, index losses, taps"""
        c = self.c
        ctx = self.context(b, sparse, index_rows)
        X = self.embed_rows(b)[:, None].expand(-1, 4, -1).contiguous()
        pre = torch.zeros(X.shape[0], 4, device=X.device)
        pre[:, 0] = 1
        st, loads, groups, tap = None, [], [], []
        for i, layer in enumerate(self.layers):
            if i in c['engram_layer_ids']:
                X = layer.engram(X, ctx['rows'][i], ctx['isimg'])
            if taps and i in c['dspark_target_layer_ids']:
                tap.append(X.float().mean(1).to(X.dtype))
            X, pre, st, score, tgt, load = layer(X, pre, ctx, st)
            loads.append(load)
            if score is not None:
                groups.append(score + [None])
            if tgt is not None:
                groups[-1][2] = tgt if groups[-1][2] is None else groups[-1][2] + tgt
        z = hc_collapse_norm(X, pre, self.norm.weight)
        return z, loads, groups, tap

    def logits(self, z):
        return K.mm32(z, self.head.weight)

    # -------- DSpark
    def draft_main(self, tap):
        m = self.mtp[0]
        return m.main_norm(m.main_proj(torch.cat(tap, -1)))

    def draft_states(self, pos, main_x, anchors, y):
        """pos [B, S]; main_x [T, d]; anchors [B, A] row p; y [B, A] token at p + 1. -> x [B * A * 5, d], before the norm"""
        c = self.c
        B, A = anchors.shape
        S, Wd, n = pos.shape[1], c['sliding_window'], c['dspark_block_size']
        dev = pos.device
        win = anchors[..., None] - Wd + 1 + torch.arange(Wd, device=dev)
        ap = torch.gather(pos, 1, anchors)
        ok = torch.arange(Wd, device=dev) >= (Wd - 1 - ap)[..., None]
        kmask = F.pad(ok.view(B * A, Wd), (0, n), value=True)
        blk = torch.cat([y[..., None], y.new_full((B, A, n - 1), self.noise_id)], -1)
        bpos = (ap[..., None] + 1 + torch.arange(n, device=dev)).view(-1, 1)
        ang, angm = bpos.float() * self.freq0, pos.reshape(-1, 1).float() * self.freq0
        cs, cm = (torch.cos(ang), torch.sin(ang)), (torch.cos(angm), torch.sin(angm))
        h = F.embedding(blk.flatten(), self.embed.weight.detach()).to(main_x.dtype)
        X = h[:, None].expand(-1, 4, -1).contiguous()
        pre = torch.zeros(X.shape[0], 4, device=dev)
        pre[:, 0] = 1
        flat = (torch.arange(B, device=dev)[:, None, None] * S + win.clamp_min(0)).view(B * A, Wd)
        for blkm in self.mtp:
            at = blkm.attn
            mk = K.aq(norm_rope(at.wkv(main_x), at.kv_norm.weight, *cm), 'q8')
            X, pre = blkm.draft(X, pre, cs, mk[flat], kmask, n)
        return hc_collapse(X, pre)

    def draft_logits(self, x, prev):
        """x [N, d]; prev [N] token before each slot -> logits [N, V], confidence logit [N]"""
        last = self.mtp[-1]
        base = K.mm32(last.norm(x), self.head.weight.detach())
        e = F.embedding(prev, last.markov_head.embed.weight).to(x.dtype)
        lg = base + K.mm32(e, last.markov_head.head.weight)
        return lg, F.linear(torch.cat([x, e], -1).float(), last.confidence_head.proj.weight)[..., 0]


def build(settings, d, dev='cpu', seed=1):
    """the model of the settings, Engram constants from d/token_map.json"""
    tm = json.load(open(f'{d}/token_map.json'))
    tj = json.load(open(f'{d}/tokenizer.json'))
    ids = {a['content']: a['id'] for a in tj['added_tokens']}
    c = settings['model']
    torch.manual_seed(seed)
    m = Model(c, settings['vision'], make_hashes(c, tm['token_map'], tm['compressed']), dict(image=ids['<｜deepseek_image｜>'], noise=ids['<｜System｜>']))
    return m.to(dev)
