"""Tokenises the permissive part of a text corpus once (CPU, a minute).  corpus.py CORPUS_DIR TOKENIZER.json OUT_DIR

OUT_DIR/static.npz: tok, w (loss weight x 100), off, kind (0 text, 1 dialogue, 2 tools), val (1 = held out);
OUT_DIR/passages.json.xz: plain paragraphs that needles are hidden in; OUT_DIR/token_map.json: the Engram token map.
"""
import json
import lzma
import os
import random
import sys
import unicodedata

import numpy as np
import zstandard
from tokenizers import Tokenizer

import prompt

SOURCES = {                                             # name: (origin, licence), as the model card names them
    'african_storybook': ('global-asp/asp-source (English rows, CC BY rows only)', 'CC BY 4.0'),
    'books_en': ('Standard Ebooks: English classics', 'public domain / CC0'),
    'us_speeches': ('inaugural and State of the Union speeches', 'public domain'),
    'tldr_pages': ('tldr-pages/tldr (English)', 'CC BY 4.0'),
    'code': ('TheAlgorithms and others, Python files, MIT rows only', 'MIT'),
    'gsm8k_train_chat': ('openai/grade-school-math, train split', 'MIT'),
    'self_instruct_human_chat': ('yizhongw/self-instruct, human-written', 'Apache-2.0'),
    'synthetic_tool_dialogues': ('generated (English rows)', 'CC0'),
}


def rows(corpus, name):
    with open(f'{corpus}/{name}.jsonl.zst', 'rb') as f:
        text = zstandard.ZstdDecompressor().stream_reader(f).read().decode('utf8', 'ignore')
    return [json.loads(x) for x in text.split('\n') if x.strip()]


def chunks(t, n):
    """paragraph-aligned pieces of about n characters"""
    cur = ''
    for p in t.split('\n'):
        if len(cur) + len(p) > n and cur:
            yield cur.strip()
            cur = ''
        cur += p[:n] + '\n'
    if cur.strip():
        yield cur.strip()


def ascii_ok(t):
    return sum(ord(c) < 256 for c in t) > 0.97 * len(t)


def text(t):
    return 'text', [[prompt.BOS, 0.0], [t + prompt.EOS, 1.0]]


def dialogue(r):
    m = r['messages']
    if not ascii_ok(''.join(str(x.get('content')) for x in m)) or sum(len(str(x.get('content'))) for x in m) > 3000:
        return None
    sysm = m[0]['content'] if m[0]['role'] == 'system' else None
    turns = []
    for x in m[1:] if sysm is not None else m:
        if x['role'] == 'user':
            turns.append(('u', x['content']))
        elif x['role'] == 'assistant':
            turns.append(('a', x.get('reasoning_content') or '', x['content'] or '', None))
    if len(turns) < 2 or turns[0][0] != 'u' or turns[-1][0] != 'a':
        return None
    return 'chat', prompt.render(dict(system=sysm, think=False, turns=turns))


def tools(r):
    turns = []
    for x in r['messages']:
        if x['role'] == 'user':
            turns.append(('u', x['content']))
        elif x['role'] == 'tool':
            turns.append(('t', x['content']))
        elif x['role'] == 'assistant':
            calls = [(c['function']['name'], json.loads(c['function']['arguments'])) for c in x.get('tool_calls') or []]
            turns.append(('a', x.get('reasoning_content') or '', x.get('content') or '', calls or None))
        else:
            return None
    while turns and turns[-1][0] != 'a':
        turns.pop()
    if not turns or turns[0][0] != 'u' or not ascii_ok(''.join(t[1] if t[0] != 'a' else t[2] for t in turns)):
        return None
    seg = prompt.render(dict(system=None, tools=[t['function'] for t in r['tools']], think=False, turns=turns))
    return ('tool', seg) if sum(len(s) for s, _ in seg) < 3600 else None


def documents(corpus):
    docs, passages = [], []
    for r in rows(corpus, 'african_storybook'):
        if r['lang'] in ('en', 'eng'):
            for i, c in enumerate(chunks(r['text'], 2600)):
                docs.append(text(r['title'] + '\n\n' + c if i == 0 else c))
                passages += chunks(c, 500)
                if i == 0 and len(c) < 1600:
                    docs.append(('chat', prompt.render(dict(system=None, think=False, turns=[('u', f'Tell me the story "{r["title"]}".'), ('a', '', c, None)]))))
    for name in ('books_en', 'us_speeches'):
        for r in rows(corpus, name):
            for c in chunks(r['text'], 3000):
                docs.append(text(c))
                if len(passages) < 9000:
                    passages += [p for p in chunks(c, 600) if len(p) > 150]
    docs += [text(r['text']) for r in rows(corpus, 'code') if r['path'].endswith('.py') and len(r['text']) < 3000 and ascii_ok(r['text'])
             and 'MIT' in str(r.get('licence', r.get('license', '')))]
    docs += [text(r['text']) for r in rows(corpus, 'tldr_pages') if r['lang'] == 'en']
    for name in ('gsm8k_train_chat', 'self_instruct_human_chat'):
        docs += [d for d in map(dialogue, rows(corpus, name)) if d]
    docs += [d for d in map(tools, rows(corpus, 'synthetic_tool_dialogues')) if d]
    return docs, passages


def token_map(tk):
    """Engram's rule: ids whose text is the same but for case, accents and white space share a number"""
    keys, out = {}, []
    for i in range(tk.get_vocab_size()):
        t = tk.decode([i], skip_special_tokens=False)
        if '\ufffd' in t:
            k = tk.id_to_token(i)
        else:
            n = ''.join(c for c in unicodedata.normalize('NFD', unicodedata.normalize('NFKC', t)) if unicodedata.category(c) != 'Mn').lower()
            n = ' '.join(n.replace('\t', ' ').replace('\r', ' ').replace('\n', ' ').split(' ')) if n else n
            while '  ' in n:
                n = n.replace('  ', ' ')
            k = (' ' if n == ' ' else n.strip()) or t
        out.append(keys.setdefault(k, len(keys)))
    return dict(token_map=out, compressed=len(keys))


def main(corpus, tokenizer, out):
    os.makedirs(out, exist_ok=True)
    tk = Tokenizer.from_file(tokenizer)
    docs, passages = documents(corpus)
    random.Random(0).shuffle(docs)
    flat, wts, offs, kinds = [], [], [0], []
    for b in range(0, len(docs), 2000):
        part = docs[b:b + 2000]
        enc = tk.encode_batch([s for _, seg in part for s, _ in seg], add_special_tokens=False)
        j = 0
        for k, seg in part:
            for s, w in seg:
                flat += enc[j].ids
                wts += [int(round(w * 100))] * len(enc[j].ids)
                j += 1
            offs.append(len(flat))
            kinds.append(('text', 'chat', 'tool').index(k))
    val = np.array([random.Random(f'val {i}').random() < 0.01 for i in range(len(docs))], np.uint8)
    np.savez(f'{out}/static.npz', tok=np.array(flat, np.uint16), w=np.array(wts, np.uint8), off=np.array(offs, np.int64), kind=np.array(kinds, np.uint8), val=val)
    random.Random(1).shuffle(passages)
    with lzma.open(f'{out}/passages.json.xz', 'wt', encoding='utf-8') as f:
        json.dump(passages[:5000], f, ensure_ascii=False)
    json.dump(token_map(tk), open(f'{out}/token_map.json', 'w'))
    n = np.diff(offs)
    k = np.array(kinds)
    print('documents', [int((k == i).sum()) for i in range(3)], 'tokens', [int(n[k == i].sum()) for i in range(3)], 'longest', int(n.max()), 'passages', len(passages))


if __name__ == '__main__':
    main(*sys.argv[1:4])
