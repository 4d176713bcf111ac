"""The draft's confidence on a finished backbone: measured on many blocks, its head fitted, temperatures checked.

Every answer position of seeded tasks and stories is one block of drafts, decoded greedily with exact inference numerics. A draft
counts as accepted when it and all before it are the target's choice. Where the text is not what the target would have said (a
story takes one of several turns), later drafts of the block have no label, whatever was drafted: that keeps the sample unbiased.
Documents, not blocks, are split: one part for fitting, one for the figures.
"""
import json
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import model as M
import probe
import prompt
import stream
import sts


def documents(tk, cfg, tag):
    """endless (kind, ids, first answer position, index): seeded, short enough for a row"""
    kinds, weights = list(cfg['kinds']), list(cfg['kinds'].values())
    i = 0
    while True:
        r = random.Random(f'confidence {tag} {i}')
        k = r.choices(kinds, weights)[0]
        q, a, th = stream.SHORT[k](r)
        ids, first = probe.tokens(tk, dict(think=r.random() < .35, effort=75, turns=[('u', q), ('a', th, a, None)]), None)
        if len(ids) <= cfg['length']:
            yield k, ids, first, i
        i += 1


def pack(docs, rows, length):
    """documents -> ids, starts [rows, length]; anchors as (row, position, end of its document, document number)"""
    ids, start = torch.full((rows, length), 2, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.int32)
    anchors = [[] for _ in range(rows)]
    doc = next(docs)
    for b in range(rows):
        o = 0
        while o + len(doc[1]) <= length:
            _, t, first, i = doc
            ids[b, o:o + len(t)], start[b, o:] = torch.tensor(t), o
            anchors[b] += [(o + p, o + len(t), i) for p in range(first - 1, len(t) - 2)]
            o += (len(t) + 7) // 8 * 8
            doc = next(docs)
        start[b, o:] = o
    return dict(ids=ids, start=start), anchors


@torch.no_grad()
def blocks(m, b, anchors):
    """-> features [n, 5, d + rank], label, valid, 1 - TV [n, 5], document [n]"""
    B, S = b['ids'].shape
    dev, G, A = b['ids'].device, m.c['dspark_block_size'], max(map(len, anchors))
    z, _, _, tap = m.backbone(b, sparse=S > 128, taps=True)
    z, ids = z.view(B, S, -1), b['ids']
    at = torch.tensor([[p for p, _, _ in a] + [0] * (A - len(a)) for a in anchors], device=dev)
    real = torch.tensor([[True] * len(a) + [False] * (A - len(a)) for a in anchors], device=dev)
    end = torch.tensor([[e for _, e, _ in a] + [0] * (A - len(a)) for a in anchors], device=dev)
    pos = torch.arange(S, device=dev)[None] - b['start']
    x = m.draft_states(pos, m.draft_main(tap), at, torch.gather(ids, 1, at + 1)).view(B, A, G, -1)[real]
    row = torch.arange(B, device=dev)[:, None].expand(B, A)[real]
    at, end = at[real], end[real]
    prev, ok, same = ids[row, at + 1], torch.ones(len(at), dtype=torch.bool, device=dev), torch.ones(len(at), dtype=torch.bool, device=dev)
    out = [], [], [], []
    for k in range(G):
        q = (at + 2 + k).clamp_max(S - 1)
        lg, _ = m.draft_logits(x[:, k], prev)
        lt = m.logits(z[row, q - 1])
        d, want = lg.argmax(-1), lt.argmax(-1)
        ok = ok & (d == want)
        tv = 0.5 * (torch.softmax(lg, -1) - torch.softmax(lt, -1)).abs().sum(-1)
        e = F.embedding(prev, m.mtp[-1].markov_head.embed.weight)
        for o, v in zip(out, (torch.cat([x[:, k], e], -1).float(), ok, same & (at + 2 + k < end), 1 - tv)):
            o.append(v)
        same = same & (want == ids[row, q])
        prev = d
    return *(torch.stack(o, 1).cpu() for o in out), np.array([i for a in anchors for _, _, i in a])


def collect(tr, cfg, tag, n, until, report=None):
    """at least n blocks of documents of one tag, or what can be had before `until`; report sees all blocks so far now and then"""
    tk, got, have = Tokenizer.from_file(f'{tr.args.data}/tokenizer.json'), [], 0
    docs = documents(tk, cfg, tag)
    while have < n and (time.time() < until or not got):
        b, anchors = pack(docs, cfg['rows'], cfg['length'])
        got.append(blocks(tr.m, {k: v.to(tr.dev) for k, v in b.items()}, anchors))
        have += len(got[-1][4])
        tr.beat = time.time()
        if report and len(got) % 10 == 0:
            report(*whole(got))
    return whole(got)


def whole(parts):
    return [torch.cat(x) if torch.is_tensor(x[0]) else np.concatenate(x) for x in zip(*parts)]


def fit(x, soft, valid, label, w, steps, pull):
    """the head w [1, f] that predicts the acceptance of each step, given that all before were accepted; L2 keeps it near where it was"""
    before = torch.cat([torch.ones_like(label[:, :1]), label[:, :-1]], 1) & valid
    X, y, w0 = x[before], soft[before], w.detach().clone()
    w = w.detach().clone().requires_grad_()
    opt = torch.optim.LBFGS([w], max_iter=steps, line_search_fn='strong_wolfe')

    def loss():
        opt.zero_grad()
        s = F.binary_cross_entropy_with_logits(F.linear(X, w)[:, 0], y) + pull * (w - w0).square().sum()
        s.backward()
        return s
    first = loss().item()
    opt.step(loss)
    return w.detach(), first, loss().item()


def errors(logit, label, valid, doc):
    """calibration error of the cumulative confidence, raw and after STS: temperatures from even documents, errors on odd ones"""
    a, b = doc % 2 == 0, doc % 2 == 1
    temps = sts.fit(logit[a], label[a], valid[a])
    out = {}
    for name, t in (('raw', [1.0] * logit.shape[1]), ('sts', temps)):
        c = sts.cumulative(logit[b], t)
        out[name] = round(sts.ece(c[valid[b]], label[b][valid[b]]), 5)
    return dict(out, temperatures=[round(t, 3) for t in temps], fit_blocks=int(a.sum()), test_blocks=int(b.sum()))


def run(tr, seconds):
    cfg, m, t0 = tr.st['confidence'], tr.m, time.time()
    keep = M.JIT_ON[0], M.EXACT[0]
    M.JIT_ON[0], M.EXACT[0] = False, True
    m.eval()
    few = tr.args.steps or 1 << 30                      # dry run: a few blocks
    head = m.mtp[-1].confidence_head.proj.weight

    def tell(part, w, x, label, valid, doc, **more):
        tr.log(stage='confidence', part=part, blocks=len(doc), accepted=round(float((label & valid).sum() / len(doc)), 3),
               **errors(F.linear(x, w.detach().cpu())[..., 0].numpy(), label.numpy().astype(float), valid.numpy(), doc), **more)
    x, label, valid, soft, doc = collect(tr, cfg, 'held-out', min(cfg['test_blocks'], 100 * few), t0 + seconds * (.5 if cfg['fit_blocks'] else 1),
                                         lambda x, label, valid, _, doc: tell('so far', head, x, label, valid, doc))
    tell('before', head, x, label, valid, doc)
    if cfg['fit_blocks']:
        X, lab, val, s, _ = collect(tr, cfg, 'train', min(cfg['fit_blocks'], 100 * few), t0 + seconds)
        w, first, last = fit(X, s if cfg['soft'] else lab.float(), val, lab, head.cpu(), cfg['steps'], cfg['pull'])
        tell('fitted', w, x, label, valid, doc, fitted_on=len(X), loss_before=first, loss=last)
        with torch.no_grad():
            head.copy_(w)
        if tr.rank == 0:
            import train
            train.save(m, f'{tr.args.out}/ck')
    M.JIT_ON[0], M.EXACT[0] = keep
    m.train()
    tr.log(event='done', name='confidence', seconds=round(time.time() - t0, 1), t=round(tr.elapsed(), 1))
