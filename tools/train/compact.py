"""A training state small enough to travel: quantised weights as their codes (the forward pass is unchanged), the rest in 8 or 16 bits.

compact.py DATA_DIR STATE_PREFIX OUT.xz        train.py --init OUT.xz reads it.
"""
import io
import lzma
import sys
import tomllib

import torch

import export
import kernels as K
import model as M
import train


def rows8(p):
    s = p.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return torch.round(p / s).to(torch.int8), s.half()


def pack(m):
    mods, out = dict(m.named_modules()), {}
    for name, p in m.named_parameters():
        p = p.detach().cpu().float()
        owner, _, leaf = name.rpartition('.')
        mod = mods.get(owner)
        kind = (4 if 'shared' not in owner else 8) if isinstance(mod, M.Experts) else mod.kind if isinstance(mod, M.W) and leaf == 'weight' else 0
        if kind:
            q, s = (export.pack_fp4 if kind == 4 else export.pack_fp8)(p)
            out[name] = (kind, q.view(torch.uint8), s.view(torch.uint8))
        elif p.dim() == 2 and p.numel() > 100000 and 'hc_' not in name:
            out[name] = (1, *rows8(p))
        else:
            out[name] = (0, p.to(torch.bfloat16) if p.dim() > 1 else p)
    return out


def write(m, path):
    b = io.BytesIO()
    torch.save(pack(m), b)
    with lzma.open(path, 'wb', preset=6) as f:
        f.write(b.getvalue())


def read(path):
    out = {}
    for n, (kind, *t) in torch.load(io.BytesIO(lzma.open(path).read()), map_location='cpu').items():
        if kind == 8:
            out[n] = t[0].view(torch.float8_e4m3fn).float() * export.tiles(export.un_e8(t[1]))
        elif kind == 4:
            out[n] = export.unpack_fp4(t[0], t[1])
        else:
            out[n] = t[0].float() * t[1].float() if kind else t[0].float()
    return out


def main(d, prefix, path):
    m = M.build(tomllib.load(open(f'{train.HERE}/settings.toml', 'rb')), d)
    train.load(m, prefix)
    write(m, path)
    back, worst = read(path), 0.0
    for n, p in m.named_parameters():
        e = float((back[n] - p.detach()).norm() / (p.detach().norm() + 1e-9))
        if e > 0.2:
            print(n, e)
        worst = max(worst, e)
    print('largest relative difference', worst)


if __name__ == '__main__':
    main(*sys.argv[1:4])
