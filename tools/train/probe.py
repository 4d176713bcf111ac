"""Greedy accuracy per ability with exact inference numerics (exact top-k, every quantiser), teacher-forced.

A case counts when every token of its answer is the argmax given the tokens before: exactly when greedy decoding would write that
answer. It is a lower bound of what `deepinfer eval tasks` reports, since other wordings and other reasoning may be right, too.
"""
import json
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import evalset
import model as M
import prompt
import sts

KINDS = [k for k in evalset.KINDS if k != 'needle'] + ['two_shapes', 'story', 'needle']


def tokens(tk, cv, img):
    if img is not None:
        cv = dict(cv, turns=[('u', prompt.IMAGE * 22 + cv['turns'][0][1])] + cv['turns'][1:])
    enc = tk.encode_batch([s for s, _ in prompt.render(cv)], add_special_tokens=False)
    ids = sum((e.ids for e in enc), [])
    return ids, len(ids) - len(enc[-1].ids)


def pad(rows, dev):
    S = (max(map(len, rows)) + 127) // 128 * 128
    ids = torch.full((len(rows), S), 2, dtype=torch.int64)
    for i, r in enumerate(rows):
        ids[i, :len(r)] = torch.tensor(r)
    return dict(ids=ids.to(dev), start=torch.zeros(ids.shape, dtype=torch.int32, device=dev))


def pictures_of(tr, rows, imgs, b):
    if imgs[0] is None:
        return b
    import pictures
    S = b['ids'].shape[1]
    b['pix'] = torch.from_numpy(np.stack([pictures.patches(i) for i in imgs])).to(tr.dev)
    b['at'] = torch.tensor([i * S + r.index(tr.m.image_id) for i, r in enumerate(rows)], dtype=torch.int32, device=tr.dev)
    return b


@torch.no_grad()
def drafts(m, b, tap, first, length):
    """all anchors of the answers -> accepted [n, 5] cumulative, confidence logits, valid; (row, p) of each"""
    G, dev, ids = m.c['dspark_block_size'], b['ids'].device, b['ids']
    B, S = ids.shape
    rows = [(i, p) for i in range(B) for p in range(first[i] - 1, length[i] - 2)]
    pos = torch.arange(S, device=dev)[None].expand(B, S)
    mx = m.draft_main(tap).view(B, S, -1)
    out = []
    for o in range(0, len(rows), 512):
        rb, pa = (torch.tensor(x, device=dev) for x in zip(*rows[o:o + 512]))
        x = m.draft_states(pos[rb], mx[rb].flatten(0, 1), pa[:, None], ids[rb, pa + 1][:, None]).view(len(rb), G, -1)
        prev, acc = ids[rb, pa + 1], torch.ones(len(rb), dtype=torch.bool, device=dev)
        A, C = [], []
        ln = torch.tensor(length, device=dev)[rb]
        for j in range(G):
            lg, cf = m.draft_logits(x[:, j], prev)
            d = lg.argmax(-1)
            q = pa + 2 + j
            acc = acc & (q < ln) & (d == ids[rb, q.clamp_max(S - 1)])
            A.append(acc)
            C.append(cf)
            prev = d
        valid = (pa[:, None] + 2 + torch.arange(G, device=dev)) < ln[:, None]
        out.append((torch.stack(A, 1).cpu().numpy(), torch.stack(C, 1).float().cpu().numpy(), valid.cpu().numpy()))
    return rows, *(np.concatenate(x) for x in zip(*out))


def blocks(rows, acc, first, length):
    """accepted length with bonus over the blocks that decoding would really run"""
    at = {r: int(a.sum()) for r, a in zip(rows, acc)}
    steps = emitted = 0
    for i, f in enumerate(first):
        p = f - 1
        while p < length[i] - 2:
            k = at[(i, p)]
            steps += 1
            emitted += k + 1
            p += k + 1
    return emitted, steps


@torch.no_grad()
def generate(tr, rows, n_new, imgs=None):
    """greedy with full recompute; rows are extended in place"""
    m, live = tr.m, set(range(len(rows)))
    for _ in range(n_new):
        b = pad([r + [2] for r in rows], tr.dev)
        if imgs:
            pictures_of(tr, rows, imgs, b)
        z = m.backbone(b, sparse=True)[0].view(*b['ids'].shape, -1)
        nx = m.logits(z[torch.arange(len(rows)), torch.tensor([len(r) - 1 for r in rows])]).argmax(-1).tolist()
        for i in list(live):
            rows[i].append(nx[i])
            if nx[i] == 1:
                live.discard(i)
        if not live:
            break
    return rows


@torch.no_grad()
def run(tr, seconds, n=500, story=24):
    t0 = time.time()
    m, dev = tr.m, tr.dev
    jit, M.JIT_ON[0] = M.JIT_ON[0], False
    M.EXACT[0] = True
    m.eval()
    torch.manual_seed(0)
    tk = Tokenizer.from_file(f'{tr.args.data}/tokenizer.json')
    res, conf, samples = {}, [], []
    if dev == 'cpu':
        n, story = 4, 1
    for kind in KINDS:
        tr.beat = time.time()
        if time.time() - t0 > seconds:
            break
        mine = range(tr.rank, n if kind != 'needle' else n // 5, tr.world)
        if kind == 'story':
            r = random.Random(tr.rank)
            rows = [sum((e.ids for e in tk.encode_batch([s for s, _ in prompt.render(dict(think=False, turns=[('u', f'Tell me a short story about a {a}.'), ('a', '', '', None)]), True)],
                                                        add_special_tokens=False)), []) for a in r.choices([x[0] for x in evalset.tasks.ANIMAL], k=story)]
            first = [len(x) for x in rows]
            generate(tr, rows, 130 if dev != 'cpu' else 3)
            data = [(x, f, None) for x, f in zip(rows, first)]
        else:
            cases = [evalset.case(kind, evalset.rng(kind, i)) for i in mine]
            data = [(*tokens(tk, cv, img), img) for cv, _, img in cases]
        data.sort(key=lambda d: len(d[0]))
        good = total = emitted = steps = 0
        loss = []
        while data:
            S = (len(data[-1][0]) + 127) // 128 * 128
            part, data = data[-max(1, 49152 // S):], data[:-max(1, 49152 // S)]
            rows, first, imgs = ([d[k] for d in part] for k in range(3))
            b = pictures_of(tr, rows, imgs, pad(rows, dev))
            z, _, _, tap = m.backbone(b, sparse=True, taps=True)
            z = z.view(*b['ids'].shape, -1)
            sel = [(i, p) for i, r in enumerate(rows) for p in range(first[i], len(r))]
            ri, pi = (torch.tensor(x, device=dev) for x in zip(*sel))
            lg, want = m.logits(z[ri, pi - 1]), b['ids'][ri, pi]
            hit = torch.ones(len(rows), dtype=torch.bool, device=dev)
            hit[ri[lg.argmax(-1) != want]] = False
            loss.append(float(F.cross_entropy(lg, want)))
            good += int(hit.sum())
            total += len(rows)
            an, acc, cf, valid = drafts(m, b, tap, first, [len(r) for r in rows])
            e, s = blocks(an, acc, first, [len(r) for r in rows])
            emitted, steps = emitted + e, steps + s
            conf.append((cf, acc, valid))
            if kind == 'story' and tr.rank == 0:
                samples += [tk.decode(r[f:], skip_special_tokens=False) for r, f in list(zip(rows, first))[:3]]
            elif tr.rank == 0:
                got = {}
                for i, t in zip(ri.tolist(), lg.argmax(-1).tolist()):
                    got.setdefault(i, []).append(t)
                for i in [i for i in range(len(rows)) if not bool(hit[i])][:2]:
                    samples.append(f'{kind}: {tk.decode(rows[i][:first[i]], skip_special_tokens=False)[-110:]!r} want {tk.decode(rows[i][first[i]:], skip_special_tokens=False)[-120:]!r} got {tk.decode(got[i], skip_special_tokens=False)[-120:]!r}')
        res[kind] = [good, total, emitted, steps, float(np.sum(loss)), len(loss)]
    v = torch.tensor([res.get(k, [0] * 6) for k in KINDS], dtype=torch.float64, device=dev)
    if tr.world > 1:
        import torch.distributed as dist
        dist.all_reduce(v)
    table = {k: dict(accuracy=round(g / n_, 4), cases=int(n_), loss=round(lo / max(nl, 1), 4), accepted=round(e / max(s, 1), 3)) for k, (g, n_, e, s, lo, nl) in zip(KINDS, v.tolist()) if n_}
    task = [v[i] for i, k in enumerate(KINDS) if k not in ('story',)]
    e, s = float(sum(x[2] for x in task)), float(sum(x[3] for x in task))
    cf, acc, valid = (np.concatenate(x) for x in zip(*conf))
    temps, err = sts.report(cf, acc.astype(float), valid)
    out = dict(abilities=table, accepted_tasks=round(e / max(s, 1), 3), temperatures=[round(t, 3) for t in temps], ece=err, blocks=int(len(cf)), held_out=held_out(tr))
    if tr.rank == 0:
        json.dump(dict(out, samples=samples), open(f'{tr.args.out}/probe.json', 'w'), ensure_ascii=False, indent=1)
        for k, x in table.items():
            print(f'probe {k:12s} {x["accuracy"]:.3f} of {x["cases"]} loss {x["loss"]:.4f} accepted {x["accepted"]:.2f}')
        print('probe', {k: x for k, x in out.items() if k != 'abilities'}, f'{time.time() - t0:.1f} s')
        print('\n'.join(s[:420] for s in samples[:40]), flush=True)
    M.EXACT[0], M.JIT_ON[0] = False, jit
    m.train()


@torch.no_grad()
def held_out(tr, n=64):
    """loss on held-out documents of the corpus, per kind"""
    z = np.load(f'{tr.args.data}/static.npz')
    out = {}
    for k, name in enumerate(('text', 'dialogue', 'tools')):
        docs = np.flatnonzero((z['kind'] == k) & (z['val'] == 1))[:n if tr.dev != 'cpu' else 1]
        rows = [z['tok'][z['off'][i]:z['off'][i + 1]][:1024].astype(int).tolist() for i in docs]
        wts = [z['w'][z['off'][i]:z['off'][i + 1]][:1024] for i in docs]
        b = pad(rows, tr.dev)
        h = tr.m.backbone(b, sparse=True)[0].view(*b['ids'].shape, -1)
        sel = [(i, p) for i, w in enumerate(wts) for p in np.flatnonzero(w > 50).tolist() if p]
        ri, pi = (torch.tensor(x, device=tr.dev) for x in zip(*sel))
        out[name] = round(float(F.cross_entropy(tr.m.logits(h[ri, pi - 1]), b['ids'][ri, pi])), 4)
    return out
