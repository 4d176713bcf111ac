"""Sequential temperature scaling of the draft confidences (spec/speculation: 81 log-spaced temperatures, 20 bins)."""
import numpy as np

GRID = np.exp(np.linspace(np.log(0.25), np.log(4.0), 81))


def ece(pred, label, bins=20):
    if len(pred) == 0:
        return 0.0
    b = np.minimum((pred * bins).astype(int), bins - 1)
    n, p, y = (np.bincount(b, weights=w, minlength=bins) for w in (np.ones_like(pred), pred, label))
    return float(np.abs(p - y).sum() / n.sum())


def cumulative(logit, temps):
    return np.cumprod(1 / (1 + np.exp(-logit / np.asarray(temps))), 1)


def fit(logit, label, valid):
    """logit, label (1 = this and all earlier drafts accepted), valid [n, G] -> temperatures"""
    temps = []
    before = np.ones(len(logit))
    for k in range(logit.shape[1]):
        v = valid[:, k]
        best = min(GRID, key=lambda t: (round(ece((before / (1 + np.exp(-logit[:, k] / t)))[v], label[v, k]), 9), abs(np.log(t))))
        temps.append(float(best))
        before = before / (1 + np.exp(-logit[:, k] / best))
    return temps


def report(logit, label, valid, seed=0):
    """temperatures fitted on one half, errors of the cumulative confidence on the other"""
    idx = np.random.default_rng(seed).permutation(len(logit))
    a, b = idx[::2], idx[1::2]
    temps = fit(logit[a], label[a], valid[a])
    one = [1.0] * logit.shape[1]
    out = {}
    for name, t in (('raw', one), ('sts', temps)):
        c = cumulative(logit[b], t)
        out[name] = ece(c[valid[b]], label[b][valid[b]])
    return temps, out
