"""The held-out task sets of docs/formats/eval_tasks.md.  evalset.py OUT_DIR [N]"""
import base64
import json
import os
import random
import subprocess
import sys

import pictures
import tasks
import tool_tasks

KINDS = ['arith', 'arith_think', 'product', 'compare', 'list', 'reading', 'json', 'tool', 'tool_result', 'tool_two', 'fact', 'word', 'chat', 'needle', 'picture']


def _plain(r, f, check, think=False):
    q, a, th = f(r)
    return dict(think=think, turns=[('u', q), ('a', th, a, None)]), check(a)


def number(a):
    return {'type': 'number', 'value': int(a.split('=')[-1])}


def exact(a):
    return {'type': 'exact', 'value': a}


def as_calls(calls):
    return {'type': 'tool_call', 'value': [{'name': n, 'arguments': a} for n, a in calls]}


def compare_check(a):
    w = a.rstrip('.').split()
    return {'type': 'contains', 'value': [w[0].rstrip(',')] if a[0] in 'YN' or w[-1] in ('larger', 'smaller') else [w[-1]]}


def case(kind, r, tokens=None):
    """(conversation that ends with the expected answer, check, picture or None)"""
    if kind in ('arith', 'arith_think'):
        return *_plain(r, lambda r: tasks.sums(r, held=True), number, kind == 'arith_think'), None
    if kind == 'product':
        return *_plain(r, tasks.product_held, number), None
    if kind == 'compare':
        return *_plain(r, tasks.compare, compare_check), None
    if kind == 'word':
        return *_plain(r, tasks.word_problem, lambda a: {'type': 'number', 'value': int(next(w for w in a.split() if w.isdigit()))}, True), None
    if kind == 'json':
        return *_plain(r, tasks.json_object, lambda a: {'type': 'json', 'value': json.loads(a)}), None
    if kind == 'needle':
        n = tokens or r.randint(500, 4000)
        while True:                                     # about 1.36 tokens a word of this text
            cv, ck = _plain(r, lambda r: tasks.needle(r, int((n - 60) / 1.36)), lambda a: {'type': 'contains', 'value': [a.rstrip('.').split(' is ', 1)[1]]})
            return cv, ck, None
    if kind in ('picture', 'two_shapes'):
        two = kind == 'two_shapes'                      # the probe's own kind: which belongs to which; `picture` has some of these, too
        img, q, a, must, th = pictures.picture(r, r.choice(['shape', 'colour'] if two else ['shape', 'colour', 'count', 'position']), 2 if two else None)
        return dict(think=False, turns=[('u', q), ('a', th, a, None)]), {'type': 'contains', 'value': must}, img
    if kind == 'tool':
        cv, _, _ = tool_tasks.one_call(r, False)
        return cv, as_calls(cv['turns'][-1][3]), None
    if kind == 'tool_result':
        cv = tool_tasks.use_result(r, False)
        return cv, exact(cv['turns'][-1][2]), None
    if kind == 'tool_two':
        cv = (tool_tasks.two_calls if r.random() < .5 else tool_tasks.call_after_result)(r, False, finish=False)
        return cv, as_calls(cv['turns'][-1][3]), None
    f = {'list': tasks.list_core, 'reading': tasks.reading, 'fact': tasks.fact, 'chat': tasks.chat}[kind]
    return *_plain(r, f, exact), None


def messages(cv, img):
    out, n = [], 0
    if cv.get('system') is not None:
        out.append({'role': 'system', 'content': cv['system']})
    ids = []
    for t in cv['turns'][:-1]:
        if t[0] == 'u':
            c = t[1]
            if img is not None:
                c = [{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + base64.b64encode(pictures.png(img)).decode()}}, {'type': 'text', 'text': c}]
            out.append({'role': 'user', 'content': c})
        elif t[0] == 't':
            out.append({'role': 'tool', 'tool_call_id': ids.pop(0), 'content': t[1]})
        else:
            m = {'role': 'assistant', 'content': t[2] or ''}
            if t[3]:
                m['tool_calls'] = []
                for name, a in t[3]:
                    n += 1
                    ids.append(f'call_{n}')
                    m['tool_calls'].append({'id': f'call_{n}', 'type': 'function', 'function': {'name': name, 'arguments': json.dumps(a, ensure_ascii=False)}})
            out.append(m)
    return out


def rng(kind, i):
    return random.Random(f'held-out {kind} {i}')


def main(out, n):
    os.makedirs(out, exist_ok=True)
    for kind in KINDS:
        k = min(n, 40) if kind == 'needle' else n
        with open(f'{out}/{kind}.jsonl', 'w', encoding='utf-8') as f:
            for i in range(k):
                cv, check, img = case(kind, rng(kind, i), 500 + 3500 * i // max(k - 1, 1) if kind == 'needle' else None)
                row = {'id': f'{kind}-{i:03d}', 'kind': kind, 'messages': messages(cv, img)}
                if cv.get('tools'):
                    row['tools'] = [{'type': 'function', 'function': t} for t in cv['tools']]
                row['thinking'] = cv['think']
                row['check'] = check
                f.write(json.dumps(row, ensure_ascii=False) + '\n')
        # The tree is small: sets lie compressed, and never beside a plain one.
        subprocess.run(['zstd', '-q', '--ultra', '-22', '-f', '--rm', f.name], check=True)


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100)
