"""Training stages.  torchrun --standalone --nproc-per-node=N train.py --data D --out O [--init PREFIX] --stages pretrain:480,long:200
(one process works without torchrun). A stage is NAME:SECONDS; --steps N runs N steps of each instead (dry run, --device cpu).
"""
import argparse
import json
import math
import os
import sys
import threading
import time
import tomllib

import numpy as np
import torch
import torch.nn.functional as F

import kernels as K
import model as M
import stream
from optim import Space

HERE = os.path.dirname(os.path.abspath(__file__))


@M.jit
def weighted_ce(lg, lab, wt):
    return (F.cross_entropy(lg, lab, reduction='none') * wt).sum()


@M.jit
def draft_terms(lg, lt, tgt, conf, w):
    """0.1 CE + 0.9 L1 + confidence BCE; lg draft logits, lt target logits, w position weights"""
    l1 = (torch.softmax(lg, -1) - torch.softmax(lt, -1)).abs().sum(-1)
    ce = F.cross_entropy(lg, tgt, reduction='none')
    acc = (1 - 0.5 * l1).clamp(0, 1)
    bce = F.binary_cross_entropy_with_logits(conf, acc.detach(), reduction='none')
    return ((0.1 * ce + 0.9 * l1 + bce) * w).sum(), acc


class Log:
    def __init__(self, path, on):
        self.f = open(path, 'a', buffering=1) if on else None

    def __call__(self, **kw):
        if self.f:
            self.f.write(json.dumps(kw) + '\n')
            print(' '.join(f'{k} {v:.4g}' if isinstance(v, float) else f'{k} {v}' for k, v in kw.items()), flush=True)


def stop(msg):
    print('STOPPED: ' + msg, flush=True)
    os._exit(3)


class Variant:
    """fixed shapes of one kind of step: its input buffers and its captured graph"""
    def __init__(self, tr, name, v):
        self.tr, self.name, self.v = tr, name, v
        B, S, NI, dev = v['rows'], v['length'], v['images'], tr.dev
        self.ids = torch.full((B, S), 2, dtype=torch.int64, device=dev)
        self.start = torch.zeros(B, S, dtype=torch.int32, device=dev)
        self.wt = torch.zeros(B, S, device=dev)
        self.pix = torch.zeros(NI, 144, 588, dtype=torch.uint8, device=dev)
        self.at = torch.full((NI,), B * S, dtype=torch.int32, device=dev)
        self.rows = torch.arange(0, S, tr.cfg['index_every'], device=dev)
        A = v.get('anchors', 0)
        self.anchor_noise = torch.zeros(B, S, device=dev) if A else None
        self.graph = None
        self.stream = stream.Stream(tr.args.data, tr.cfg['seed'] * 100 + tr.rank * 7 + v['seed'], S, B, NI, tr.mix(v), v['workers'], v.get('p_needle_long', 0) > 0)

    def fill(self):
        T, W, P, pix, at = self.stream.get()
        self.check(T, P, at)
        for dst, src in ((self.ids, T.astype(np.int64)), (self.start, P.astype(np.int32)), (self.wt, W.astype(np.float32) / 100), (self.pix, pix), (self.at, at)):
            t = torch.from_numpy(src)
            dst.copy_(t.pin_memory() if dst.is_cuda else t, non_blocking=True)
        r = int(np.random.randint(self.tr.cfg['index_every']))
        self.rows.copy_(torch.arange(r, self.v['length'], self.tr.cfg['index_every']))
        if self.anchor_noise is not None:
            self.anchor_noise.uniform_()

    def check(self, T, P, at):
        B, S = self.ids.shape
        if T.shape != (B, S) or P.shape != (B, S) or T.max() >= self.tr.c['vocab_size'] or (P > np.arange(S)).any() or at.max() > B * S:
            stop(f'a batch of {self.name} is malformed: ids {T.shape} max {T.max()}, starts {P.shape}')

    def batch(self):
        return dict(ids=self.ids, start=self.start, pix=self.pix, at=self.at)

    def labels(self):
        ids, S = self.ids, self.ids.shape[1]
        lab = F.pad(ids[:, 1:], (0, 1))
        wt = F.pad(self.wt[:, 1:], (0, 1))
        cont = F.pad(self.start[:, 1:], (0, 1)) == self.start
        cont[:, S - 1] = False
        return lab, wt * cont * (lab != self.tr.m.image_id)

    def work(self):
        tr = self.tr
        tr.space.zero()
        (self.draft_loss if tr.draft else self.lm_loss)()

    def lm_loss(self):
        tr, v = self.tr, self.v
        z, loads, groups, _ = tr.m.backbone(self.batch(), v['sparse'], self.rows if tr.whole else None)
        lab, wt = self.labels()
        ce = weighted_ce(tr.m.logits(z), lab.flatten(), wt.flatten()) / (wt.sum() + 1)
        ik = sum(M.index_loss(*g) for g in groups) / len(groups) if groups else torch.zeros_like(ce)
        (ce + ik).backward()
        t = tr.space.tail
        with torch.no_grad():
            t[1].copy_(ce)
            t[3].copy_(ik)
            t[4].copy_(torch.stack(loads)[:, 0].max())
            ld = torch.stack(loads).flatten()
            t[16:16 + ld.numel()].copy_(ld)
            t[0].copy_(tr.clock)

    def draft_loss(self):
        tr, m = self.tr, self.tr.m
        ids, start = self.ids, self.start.long()
        B, S = ids.shape
        n, A, dev = m.c['dspark_block_size'], self.v['anchors'], ids.device
        with torch.no_grad():
            z, _, _, tap = m.backbone(self.batch(), self.v['sparse'], None, taps=True)
        pos = torch.arange(S, device=dev)[None] - start
        sc = self.anchor_noise[:, :S - n - 1] + (self.wt[:, 2:S - n + 1] > 0.2)              # prefer answers
        anc = torch.topk(sc, A, -1).indices
        off = anc[..., None] + 1 + torch.arange(n, device=dev)                               # p + 1 .. p + 5
        same = torch.gather(start, 1, (off + 1).flatten(1)).view(B, A, n) == torch.gather(start, 1, anc)[..., None]
        prev = torch.gather(ids, 1, off.flatten(1)).view(-1)
        tgt = torch.gather(ids, 1, (off + 1).flatten(1)).view(-1)
        x = m.draft_states(pos, m.draft_main(tap), anc, prev.view(B, A, n)[..., 0])
        lg, conf = m.draft_logits(x, prev)
        with torch.no_grad():
            zt = z.view(B, S, -1)[torch.arange(B, device=dev)[:, None, None], off].view(B * A * n, -1)
            lt = m.logits(zt)
        k = torch.arange(n, device=dev)
        w = (same.view(B * A, n) * torch.exp(-k / 4.0)).flatten()
        loss, acc = draft_terms(lg, lt, tgt, conf, w)
        loss = loss / (w.sum() + 1e-6)
        loss.backward()
        t = tr.space.tail
        with torch.no_grad():
            good = (acc.view(B * A, n) * same.view(B * A, n)).cumprod(-1).sum() / (B * A)
            t[1].copy_(loss)
            t[3].copy_(1 + good)
            t[0].copy_(tr.clock)

    def capture(self, pool):
        if self.tr.dev == 'cpu':
            return
        s = torch.cuda.Stream()
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            for _ in range(2):
                self.work()
        torch.cuda.current_stream().wait_stream(s)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode='thread_local'):
            self.work()

    def run(self):
        self.graph.replay() if self.graph else self.work()


class Trainer:
    def __init__(self, args, settings):
        self.t00, self.args, self.st, self.cfg, self.c = time.time(), args, settings, settings['train'], settings['model']
        self.rank, self.world = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
        self.dev = 'cpu' if args.device == 'cpu' else f'cuda:{int(os.environ.get("LOCAL_RANK", 0))}'
        self.log = Log(f'{args.out}/train.jsonl', self.rank == 0)
        self.beat = time.time()
        threading.Thread(target=self.watch, daemon=True).start()
        np.random.seed(1000 * self.cfg['seed'] + self.rank)
        torch.manual_seed(self.cfg['seed'])
        self.m = M.build(settings, args.data, self.dev if self.dev == 'cpu' else 'cpu', self.cfg['seed'])
        if args.init:
            load(self.m, args.init)
        if self.dev != 'cpu':
            torch.cuda.set_device(self.dev)
            torch.backends.cuda.matmul.allow_tf32 = True
            self.m = self.m.to(self.dev)
            M.compile_pieces()
        if self.world > 1:
            import torch.distributed as dist
            dist.init_process_group('nccl' if self.dev != 'cpu' else 'gloo')
            for p in self.m.parameters():
                dist.broadcast(p.data, 0)
        self.clock = torch.zeros((), device=self.dev)
        self.draft, self.whole = False, True

    def watch(self):
        while True:
            time.sleep(5)
            if time.time() - self.beat > self.args.dog:
                stop(f'no step in {self.args.dog} s')

    def mix(self, v):
        return dict(self.st['mix'], **{k: v[k] for k in ('p_needle_long', 'needle_text_weight', 'p_tool', 'p_picture', 'two_shapes', 'static', 'kinds') if k in v})

    def elapsed(self):
        return time.time() - self.t00

    def stage(self, name, seconds):
        s = self.st[name]
        self.draft, self.whole = name == 'dspark', name != 'dspark' and 'trains' not in s
        named = list(self.m.named_parameters())
        for n, p in named:                              # `trains`: names that begin so; without it all of the backbone
            p.requires_grad_(n.startswith(tuple(s.get('trains', ()))) if 'trains' in s else n.startswith('mtp') == self.draft and '.gate.bias' not in n)
        self.space = Space([(n, p) for n, p in named if p.requires_grad], self.world, dict(self.cfg, muon_lr=self.cfg['muon_lr'] * s.get('scale', 1.0), adam_lr=self.cfg['adam_lr'] * s.get('scale', 1.0)))
        state = f'{self.args.state or self.args.out}/{name}.state'
        done = 0.0
        if self.args.state and os.path.exists(state):
            z = torch.load(state, map_location=self.dev)
            self.space.load(z['space'])
            done = z['progress']
        self.m.train()
        names = s.get('cycle', [name])
        vs = {n: Variant(self, n, dict(dict(sparse=False, seed=i + 1), **(self.st[n] if n in self.st else {}))) for i, n in enumerate(dict.fromkeys(names))}
        for v in vs.values():
            v.fill()
        pool = None
        for v in vs.values():
            v.capture(pool)
            self.beat = time.time()
            if v.graph:
                pool = v.graph.pool()
        upd = None
        biases = [l.ffn.gate.bias for l in self.m.layers], [l.ffn.gate.bias_vl for l in self.m.layers]
        E = self.c['n_routed_experts']

        def update():
            self.space.step(s['warm'], s['hold'], s['end'])
            if self.whole:
                ld = self.space.tail[16:16 + len(biases[0]) * 2 * E].view(len(biases[0]), 2, E)
                for i in range(len(biases[0])):
                    for k in (0, 1):
                        biases[k][i].add_(torch.sign(ld[i, k].mean() - ld[i, k]) * (self.cfg['bias_rate'] * self.space.lr))
        if self.dev != 'cpu':
            keep = self.space.state(), [b.clone() for bs in biases for b in bs]
            st = torch.cuda.Stream()
            st.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(st), torch.no_grad():
                for _ in range(2):
                    update()
            torch.cuda.current_stream().wait_stream(st)
            upd = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(upd, pool=pool, capture_error_mode='thread_local'):
                update()
            self.space.load(keep[0])
            self.space.bad.zero_()
            for b, k in zip([b for bs in biases for b in bs], keep[1]):
                b.copy_(k)
            torch.cuda.synchronize()
        self.log(event='stage', name=name, params=int(self.space.data.numel()), ready=round(self.elapsed(), 1), variants=list(vs), world=self.world)
        t0, step, tok, ema, best, saved, tlog, wlog = time.time() - done * seconds, 0, 0, None, 1e9, time.time(), time.time(), 0
        while True:
            n = names[step % len(names)]
            v = vs[n]
            v.fill()
            self.clock.fill_(step / self.args.steps if self.args.steps else min(1.0, (time.time() - t0) / seconds))
            v.run()
            if self.world > 1:
                import torch.distributed as dist
                dist.all_reduce(self.space.grad)
            if upd:
                upd.replay()
            else:
                with torch.no_grad():
                    update()
            step += 1
            tok += v.ids.numel() * self.world
            every = 1 if step <= 3 or self.args.steps else 10
            if step % every == 0:
                t = self.space.tail[:8].tolist()                                             # synchronises
                self.beat = time.time()
                if step == 1:
                    self.log(event='first step', seconds=round(self.elapsed(), 1), ce=t[1])
                if not math.isfinite(t[1]) or float(self.space.bad) > 20:
                    stop(f'diverged at step {step}: loss {t[1]}, {int(self.space.bad)} steps without finite gradients')
                ema = t[1] if ema is None else 0.9 * ema + 0.1 * t[1]
                best = min(best, ema)
                if step > 300 and ema > 2.5 * best + 1:
                    stop(f'diverged at step {step}: loss {ema:.3f} after {best:.3f}')
                if step <= 5 or time.time() - tlog > 5 or self.args.steps:
                    dt = max(time.time() - tlog, 1e-6)
                    self.log(stage=name, step=step, t=round(self.elapsed(), 1), p=round(t[0], 4), loss=t[1], aux=t[3], load=t[4], norm=t[2], lr=float(self.space.lr),
                             ktok_s=(tok - wlog) / dt / 1e3, mtok=tok / 1e6, reused=sum(x.stream.reused for x in vs.values()), variant=n, **(dict(gb=torch.cuda.max_memory_allocated() / 1e9) if self.dev != 'cpu' else {}))
                    tlog, wlog = time.time(), tok
                if t[0] >= 1 or self.args.steps and step >= self.args.steps:
                    break
                if time.time() - saved > self.args.save_every and self.rank == 0:
                    save(self.m, f'{self.args.out}/ck')
                    if self.args.state:
                        torch.save(dict(space=self.space.state(), progress=t[0]), state + '.new')
                        os.replace(state + '.new', state)
                    saved = time.time()
        for x in vs.values():
            x.stream.close()
        del vs, upd, v
        for p in self.m.parameters():
            p.grad = None
        if self.dev != 'cpu':
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        if self.rank == 0:
            save(self.m, f'{self.args.out}/ck')
            if self.args.state:
                torch.save({k: v.detach().cpu().clone() for k, v in self.m.state_dict().items()}, f'{self.args.state}/{name}.end.pt')
                if os.path.exists(state):
                    os.remove(state)
        self.log(event='done', name=name, steps=step, mtok=tok / 1e6, seconds=round(time.time() - t0, 1), t=round(self.elapsed(), 1))


def save(m, path):
    """weights (BF16, statistics FP32) in files below 16 MiB"""
    sd = {k: v.detach().to(torch.bfloat16 if v.dim() > 1 and 'hc_' not in k else torch.float32).cpu().clone() for k, v in m.state_dict().items()}
    part, size, i = {}, 0, 0
    for k, v in list(sd.items()) + [(None, None)]:
        n = 0 if v is None else v.numel() * v.element_size()
        if k is None or size + n > 15.0e6:
            torch.save(part, f'{path}.{i}.pt.new')
            os.replace(f'{path}.{i}.pt.new', f'{path}.{i}.pt')
            part, size, i = {}, 0, i + 1
        if k is not None:
            part[k] = v
            size += n


def load(m, path):
    if os.path.isdir(path):
        import export
        export.read_back(m, path)
        return
    if path.endswith('.xz'):
        import compact
        sd = compact.read(path)
    else:
        sd = torch.load(path, map_location='cpu') if os.path.isfile(path) else {}
    i = 0
    while os.path.exists(f'{path}.{i}.pt'):
        sd.update(torch.load(f'{path}.{i}.pt', map_location='cpu'))
        i += 1
    if not sd:
        stop(f'no checkpoint at {path} or {path}.0.pt')
    own = m.state_dict()
    missing = [k for k in own if k not in sd or own[k].shape != sd[k].shape]
    if missing:
        stop(f'checkpoint {path} does not fit the settings: {missing[:4]} ...')
    with torch.no_grad():
        for k, v in sd.items():
            own[k].copy_(v)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--data', required=True)
    ap.add_argument('--out', required=True)
    ap.add_argument('--stages', required=True)
    ap.add_argument('--settings', default=f'{HERE}/settings.toml')
    ap.add_argument('--init')
    ap.add_argument('--state', help='folder for full states, to resume an interrupted stage from')
    ap.add_argument('--device', default='cuda')
    ap.add_argument('--steps', type=int, default=0)
    ap.add_argument('--small', action='store_true', help='tiny batches, for a dry run')
    ap.add_argument('--dog', type=float, default=150)
    ap.add_argument('--save_every', type=float, default=90)
    ap.add_argument('--until', type=float, default=1e9, help='seconds after which no stage runs on')
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    if a.state:
        os.makedirs(a.state, exist_ok=True)
    st = tomllib.load(open(a.settings, 'rb'))
    if a.small:
        for k in st:
            if isinstance(st[k], dict) and 'rows' in st[k]:
                st[k].update(rows=2, length=min(st[k]['length'], 512), images=2, workers=1)
                if 'anchors' in st[k]:
                    st[k]['anchors'] = 4
    tr = Trainer(a, st)
    for s in a.stages.split(','):
        name, _, sec = s.partition(':')
        if name in ('probe', 'confidence', 'trial'):
            __import__(name).run(tr, *([] if name == 'trial' else [float(sec or 60)]))
        else:
            tr.stage(name, min(float(sec or 60), a.until - tr.elapsed()))
    if tr.world > 1:
        torch.cuda.synchronize() if tr.dev != 'cpu' else None
    sys.stdout.flush()
    os._exit(0)


if __name__ == '__main__':
    main()
