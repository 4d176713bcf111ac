"""The first run of any change: kernels against their plain forms, seconds to the first step, tokens/s by batch, finite gradients."""
import time

import torch

import kernels_test
import train


def run(tr):
    if tr.rank == 0 and tr.dev != 'cpu':
        print('kernels', {k: '%.1e' % max(v) for k, v in kernels_test.check('cuda').items()}, flush=True)
    named = [(n, p) for n, p in tr.m.named_parameters() if p.requires_grad and not n.startswith('mtp')]
    tr.space = train.Space(named, tr.world, tr.cfg)
    for name, rows in (('pretrain', 32), ('pretrain', 64), ('long_sparse', 8)):
        t = time.time()
        v = train.Variant(tr, name, dict(dict(sparse=False, seed=7), **tr.st[name], **{}) | dict(rows=rows))
        v.fill()
        tq = time.time() - t
        v.capture(None)
        torch.cuda.synchronize()
        tc = time.time() - t
        n, busy = 10, 0.0
        for k in range(2):
            torch.cuda.synchronize()
            t = time.time()
            for _ in range(n):
                v.run()
            torch.cuda.synchronize()
            busy = (time.time() - t) / n
        t = time.time()
        for _ in range(n):
            v.fill()
            v.run()
            if tr.world > 1:
                torch.distributed.all_reduce(tr.space.grad)
        torch.cuda.synchronize()
        full = (time.time() - t) / n
        g = tr.space.grad
        if tr.rank == 0:
            print(f'trial {name} rows {rows}: first batch {tq:.1f} s, ready {tc:.1f} s, graph {busy * 1e3:.1f} ms = {v.ids.numel() / busy / 1e3:.0f} ktok/s a GPU, with data and all-reduce '
                  f'{full * 1e3:.1f} ms, finite {bool(torch.isfinite(g).all())}, loss {float(tr.space.tail[1]):.3f}, {torch.cuda.max_memory_allocated() / 1e9:.0f} GB', flush=True)
            if name != 'pretrain' or rows == 32:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as pr:
                    v.run()
                    torch.cuda.synchronize()
                print(pr.key_averages().table(sort_by='cuda_time_total', row_limit=22, max_name_column_width=70)[-6800:], flush=True)
        v.stream.close()
        del v
        tr.beat = time.time()
        torch.cuda.empty_cache()
    for p in tr.m.parameters():
        p.grad = None
