"""Packed batches from worker processes.

Documents are packed into rows of S tokens; each starts at a multiple of 8 and sees only itself (`start`). Every worker owns a
seed, and the consumer takes the workers in turn. When generators fall behind, recent batches are used again: the device never waits.
"""
import ctypes
import lzma
import io
import json
import multiprocessing as mp
import os
import queue
import random

import numpy as np

import pictures
import prompt
import tasks
import tool_tasks

PAD, SPAN = 2, 22                                       # a 168 x 168 picture: START, 4 x (4 IMAGE + NEWLINE), END
SHORT = dict(sums=tasks.sums, product=tasks.product, division=tasks.division, word=tasks.word_problem, compare=tasks.compare, next=tasks.next_number,
             list=tasks.list_core, list_more=tasks.list_more, fact=tasks.fact, chat=tasks.chat, reading=tasks.reading, code=tasks.code, json=tasks.json_object,
             story=tasks.story_qa, needle=tasks.needle,
             prime=tasks.prime, unknown=tasks.unknown)
SYSTEMS = [None] * 7 + ['You are a helpful assistant.', 'You are a helpful assistant.', 'You are a friendly assistant.', 'Answer briefly.', 'You are a tiny demo model.']


def conversation(r, mix, kind=None):
    """a dialogue; short kinds are asked many times in one conversation, mixed or all of one kind"""
    think = r.random() < .35
    kinds, weights = list(mix), list(mix.values())
    k = kind or r.choices(kinds, weights)[0]
    cv = dict(system=r.choice(SYSTEMS), think=think, effort=r.choice([25, 50, 75, 75, 75, 100]), turns=[])
    long = k in ('needle', 'story', 'reading')
    n = 1 if k == 'needle' else r.choice([1, 1, 1, 2]) if think or long else r.choice([1, 1, 1, 2, 3, 4, 6, 8])
    same = r.random() < .6
    for i in range(n):
        if i and not same:
            k = r.choices(kinds, weights)[0]
            if k in ('needle', 'story'):
                k = 'chat'
        q, a, th = SHORT[k](r)
        if k == 'json' and r.random() < .3:
            cv['json'] = True
        cv['turns'] += [('u', q), ('a', th, a, None)]
    return cv


def picture_conversation(r, two_shapes=0.0):
    two = two_shapes > 0 and r.random() < two_shapes
    img, q, a, _, th = pictures.picture(r, r.choice(['shape', 'colour', 'describe']), 2) if two else pictures.picture(r)
    span = prompt.IMAGE * SPAN
    u = span + q if r.random() < .8 else q + span
    return dict(system=r.choice(SYSTEMS), think=r.random() < .15, effort=75, turns=[('u', u), ('a', th, a, None)]), img


class Source:
    def __init__(self, d, seed, S, mix, long=False):
        from tokenizers import Tokenizer
        self.tk = Tokenizer.from_file(f'{d}/tokenizer.json')
        z = np.load(f'{d}/static.npz')
        self.tok, self.w, self.off = z['tok'], z['w'], z['off']
        kind, val = z['kind'], z['val']
        self.by = [np.flatnonzero((kind == k) & (val == 0)) for k in range(3)]
        self.passages = json.load(lzma.open(f'{d}/passages.json.xz', 'rt', encoding='utf-8')) if long else ()
        self.r, self.S, self.mix, self.long = random.Random(seed), S, mix, long
        self.buf, self.pend = [], []

    def one(self):
        m, x = self.mix, self.r.random()
        if self.long and x < m['p_needle_long']:
            q, a, th = tasks.needle(self.r, self.r.randint(60, int(self.S * .69)), self.passages)
            return dict(system=None, think=self.r.random() < .15, effort=75, pw=m.get('needle_text_weight', .05), turns=[('u', q), ('a', th, a, None)]), None
        x = self.r.random()
        if x < m['p_picture']:
            return picture_conversation(self.r, m.get('two_shapes', 0.0))
        if x < m['p_picture'] + m['p_tool']:
            cv = tool_tasks.conversation(self.r, self.r.random() < .3)
            cv['effort'] = self.r.choice([50, 75, 75, 100])
            return cv, None
        return conversation(self.r, m['kinds']), None

    def generated(self, n):
        cvs = [self.one() for _ in range(n)]
        segs = [prompt.render(cv, pw=cv.get('pw', .05)) for cv, _ in cvs]
        enc = self.tk.encode_batch_fast([s for g in segs for s, _ in g], add_special_tokens=False)
        j = 0
        for g, (_, img) in zip(segs, cvs):
            t, w = [], []
            for _, x in g:
                ids = enc[j].ids
                t += ids
                w += [int(round(x * 100))] * len(ids)
                j += 1
            yield np.array(t, np.uint16), np.array(w, np.uint8), img

    def doc(self):
        x, self.cut = self.r.random(), False
        st = self.mix['static']                         # shares of text, dialogue, tools
        for k in range(3):
            if x < st[k]:
                i = self.by[k][self.r.randrange(len(self.by[k]))]
                a, b = self.off[i], self.off[i + 1]
                w = self.w[a:b]
                return self.tok[a:b], (w // 2 if k == 0 else w), None
            x -= st[k]
        self.cut = True
        if not self.buf:
            self.buf = list(self.generated(64))
        return self.buf.pop()

    def batch(self, B, NI):
        S = self.S
        T, W, P = np.full((B, S), PAD, np.uint16), np.zeros((B, S), np.uint8), np.zeros((B, S), np.uint16)
        pix, at, ni = np.zeros((NI, 144, 588), np.uint8), np.full(NI, B * S, np.int32), 0
        for b in range(B):
            o = 0
            while S - o >= 16:
                while len(self.pend) < 40:
                    t, w, img = self.doc()
                    if len(t) <= S or not self.cut:     # a cut conversation would lose its answer
                        self.pend.append((t[:S], w[:S], img))
                i = next((i for i, (t, _, img) in enumerate(self.pend) if len(t) <= S - o and (img is None or ni < NI)), None)
                if i is None:
                    if sum(x[2] is not None for x in self.pend) > 30:
                        self.pend = [x for x in self.pend if x[2] is None]
                    break
                t, w, img = self.pend.pop(i)
                n = len(t)
                T[b, o:o + n], W[b, o:o + n], P[b, o:] = t, w, o
                if img is not None:
                    pix[ni] = pictures.patches(img)
                    at[ni] = b * S + o + int(np.flatnonzero(t == self.image_id)[0])
                    ni += 1
                o += (n + 7) // 8 * 8
            if o < S:
                P[b, o:] = o
        return T, W, P, pix, at

    @property
    def image_id(self):
        if not hasattr(self, '_img'):
            self._img = self.tk.token_to_id(prompt.IMAGE)
        return self._img


def _work(d, seed, S, B, NI, mix, long, q):
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'
    ctypes.CDLL('libc.so.6').prctl(1, 9)                # die with the trainer: orphans would keep its output pipe open
    n = os.open(os.devnull, os.O_WRONLY)
    os.dup2(n, 1)
    s = Source(d, seed, S, mix, long)
    while True:
        q.put(s.batch(B, NI))


class Stream:
    """B is the trainer's batch; each worker makes quarters of it, so that a batch mixes four generators"""
    def __init__(self, d, seed, S, B, NI, mix, workers, long=False, part=4):
        self.part = min(part, B)
        ctx = mp.get_context('fork')
        self.qs = [ctx.Queue(6) for _ in range(workers)]
        self.ps = [ctx.Process(target=_work, args=(d, seed * 1000 + i, S, B // self.part, NI // self.part, mix, long, q), daemon=True) for i, q in enumerate(self.qs)]
        for p in self.ps:
            p.start()
        self.i, self.old, self.reused, self.B, self.S, self.NI = 0, [], 0, B, S, NI
        self.r = random.Random(seed)

    def piece(self):
        for _ in range(len(self.qs)):
            q = self.qs[self.i % len(self.qs)]
            self.i += 1
            try:
                x = q.get_nowait()
                self.old.append(x)
                if len(self.old) > 400:
                    self.old.pop(self.r.randrange(200))
                return x
            except queue.Empty:
                continue
        if len(self.old) > 60:
            self.reused += 1
            return self.old[self.r.randrange(len(self.old))]
        self.i += 1
        x = self.qs[self.i % len(self.qs)].get(timeout=120)
        self.old.append(x)
        return x

    def get(self):
        ps = [self.piece() for _ in range(self.part)]
        n = self.B // self.part * self.S
        at = np.concatenate([np.where(p[4] >= n, self.B * self.S, p[4] + i * n).astype(np.int32) for i, p in enumerate(ps)])
        return [np.concatenate([p[k] for p in ps]) for k in range(4)] + [at]

    def close(self):
        for p in self.ps:
            p.terminate()
