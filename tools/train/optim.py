"""One flat space of parameters: Muon for matrices, Adam for the rest, the learning rate's schedule on the device.

Everything is a fixed list of device operations on fixed buffers, so a step can be captured into a graph, and one all-reduce
of `grad` (whose tail carries expert loads, losses and the clock) keeps any number of ranks bit-equal.
"""
import torch

TAIL = 512


def ns5(X):
    """orthogonalise the matrices of [n, r, c]"""
    a, b, c = 3.4445, -4.7750, 2.0315
    X = X.bfloat16() if X.is_cuda else X
    tr = X.shape[-2] > X.shape[-1]
    if tr:
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return (X.mT if tr else X).float()


def kind_of(n, p):
    if n in ('embed.weight', 'head.weight') or 'engram.embed' in n or 'markov' in n:
        return 0
    if p.dim() >= 2 and not any(k in n for k in ('hc_', 'gate.weight', 'q_weight', 'k_weight', 'confidence', 'bias')):
        return 2
    return 1


class Space:
    def __init__(self, named, world, cfg, adam_scale=1.0):
        self.world, self.cfg = world, cfg
        items = sorted(((kind_of(n, p), tuple(p.shape[-2:]) if kind_of(n, p) == 2 else (), n, p) for n, p in named), key=lambda x: x[:3])
        dev = items[0][3].device
        n = sum((p.numel() + 7) // 8 * 8 for *_, p in items)
        self.data, self.grad = torch.zeros(n, device=dev), torch.zeros(n + TAIL, device=dev)
        self.m1, self.m2 = torch.zeros(n, device=dev), None
        self.tail = self.grad[n:]
        self.groups, o, self.bounds = [], 0, [0, 0]
        for k, shape, name, p in items:
            q, size = p.numel(), (p.numel() + 7) // 8 * 8
            self.data[o:o + q].copy_(p.detach().flatten())
            p.data = self.data[o:o + q].view(p.shape)
            p.grad = self.grad[o:o + q].view(p.shape)
            if k < 2:
                self.bounds[k] = o + size
                self.bounds[1] = max(self.bounds)
            else:
                if self.groups and self.groups[-1][0] == shape:
                    self.groups[-1][2] = o + q
                else:
                    self.groups.append([shape, o, o + q])
            o += size
        self.names = [x[2] for x in items]
        a = self.bounds[1]
        self.m2 = torch.zeros(a, device=dev)
        self.lr_scale = torch.full((a,), 0.5, device=dev)
        self.lr_scale[:self.bounds[0]] = 1.0
        self.step_no, self.bad, self.lr = (torch.zeros((), device=dev) for _ in range(3))

    def state(self):
        return {k: getattr(self, k).cpu() for k in ('data', 'm1', 'm2', 'step_no')}

    def load(self, s):
        for k, v in s.items():
            getattr(self, k).copy_(v)

    def zero(self):
        self.grad.zero_()

    @torch.no_grad()
    def step(self, warm, hold, end):
        """tail[0] is the stage's progress 0..1 (a sum over ranks, as all of grad): after `hold` the rate falls linearly to `end`"""
        c, a = self.cfg, self.bounds[1]
        self.grad.div_(self.world)
        p = self.tail[0]
        self.step_no.add_(1)
        self.lr.copy_(torch.clamp(self.step_no / warm, max=1.0) * torch.where(p < hold, 1.0, end + (1 - end) * (1 - p) / (1 - hold + 1e-9)))
        g, f = self.grad[:-TAIL], self.lr
        ok = torch.isfinite(g.sum()) & torch.isfinite(self.tail[1])
        self.bad.add_((~ok).float())
        torch.nan_to_num_(g, nan=0.0, posinf=0.0, neginf=0.0)
        f = f * ok
        ga = g[:a]
        self.tail[2].copy_(ga.norm())
        ga.mul_(torch.clamp(c['clip'] / (self.tail[2] + 1e-6), max=1.0))
        m1, m2 = self.m1[:a], self.m2
        m1.lerp_(ga, 0.1)
        m2.lerp_(ga * ga, 0.05)
        t = self.step_no
        u = (m1 / (1 - 0.9 ** t)) / ((m2 / (1 - 0.95 ** t)).sqrt() + 1e-10)
        self.data[:a].sub_(u * self.lr_scale * (f * c['adam_lr']))
        for shape, o, e in self.groups:
            G, B, P = (x[o:e].view(-1, *shape) for x in (g, self.m1, self.data))
            B.lerp_(G, 0.05)
            u = ns5(torch.lerp(G, B, 0.95)) * max(1.0, shape[0] / shape[1]) ** 0.5
            P.mul_(1 - f * (c['muon_lr'] * 0.02)).sub_(u * (f * c['muon_lr']))
