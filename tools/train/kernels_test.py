"""Every fused kernel against its plain form.  On a GPU, or on a CPU with TRITON_INTERPRET=1."""
import sys

import torch

import kernels as K


def rel(a, b):
    return float((a.float() - b.float()).norm() / (b.float().norm() + 1e-12))


def check(dev='cuda'):
    torch.manual_seed(0)
    out = {}

    def both(f):
        K.FORCE[0] = True
        a = f()
        K.FORCE[0] = False
        t = K.triton
        K.triton = None
        b = f()
        K.triton = t
        return [rel(x, y) for x, y in zip(a, b)]
    dt = torch.bfloat16
    x = (torch.randn(64, 512, device=dev) * torch.exp(torch.randn(64, 1, device=dev) * 3)).to(dt)
    for k in K.PLAIN:
        out[k] = both(lambda: [K.aq(x, k)])
    w = torch.randn(64, 96, device=dev) * 0.1
    out['w8'], out['w4'] = both(lambda: [K.wq(w, 8, dt)]), both(lambda: [K.wq(w, 4, dt)])
    m0, g = torch.randn(300, 4, 4, device=dev) * 2, torch.randn(300, 4, 4, device=dev)

    def sk():
        m = m0.clone().requires_grad_()
        o = K.sinkhorn(m)
        return [o.detach(), torch.autograd.grad(o, m, g)[0]]
    out['sinkhorn'] = both(sk)
    B, S, H, D = 2, 256, 4, 32
    start = torch.zeros(B, S, dtype=torch.int32, device=dev)
    start[:, 136:] = 136
    start[1, 200:] = 200
    for m in (0, 1, 2):
        C = S // m if m else 0
        t = [torch.randn(*s, device=dev, dtype=torch.float32) for s in ((B, S, H, D), (B, S, D), (B, max(C, 1), D))]
        sink, do = torch.randn(H, device=dev), torch.randn(B, S, H, D, device=dev)
        for sel in (None, torch.rand(B, S, max(C, 1), device=dev) < .5):
            def at():
                q, kw, kc = (v.clone().requires_grad_() for v in t)
                sk = sink.clone().requires_grad_()
                o, _ = K.attend(q, kw, kc if m else None, sk, start, sel if m else None, m)
                return [o.detach()] + list(torch.autograd.grad(o, [q, kw, sk] + ([kc] if m else []), do))
            out[f'attend{m}{"s" if sel is not None else ""}'] = both(at)
    return out


if __name__ == '__main__':
    res = check('cuda' if torch.cuda.is_available() else 'cpu')
    for k, v in res.items():
        print(k, ['%.1e' % e for e in v])
    sys.exit(max(max(v) for v in res.values()) > 2e-3)
