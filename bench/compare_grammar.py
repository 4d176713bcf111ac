#!/usr/bin/env python3
"""bench/compare_grammar.py PROGRAM DATA TOKENIZER [N]: `bench grammar` with llguidance beside it, on the same rows, one after the other.

DATA is a *.jsonl(.zst) file of rows {schema, tests: [{valid, data}]}, TOKENIZER a tokenizer.json(.zst), N how many rows (all). Both
compile each schema (with the first mask) and walk each instance mask by mask, in processor time of one thread.
REQUIRES: pip install llguidance; the zstd program for .zst files."""
import json
import os
import subprocess
import sys
import tempfile
import time

import llguidance as ll


def text_of(path):
    if path.endswith('.zst'):
        return subprocess.run(['zstd', '-dcq', path], check=True, capture_output=True).stdout.decode()
    with open(path) as file:
        return file.read()


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def neighbour(rows, tokenizer):
    compiler = ll.JsonCompiler(separators=(',', ':'), whitespace_flexible=True)
    counts = dict(refused=0, blocked=0, accepted=0)
    compiling, masks = [], []
    for row in rows:
        begin = time.thread_time()
        try:
            matcher = ll.LLMatcher(tokenizer, compiler.compile(json.dumps(row['schema'])))
            refused = matcher.is_error()
            if not refused:
                matcher.compute_bitmask()
        except ValueError:
            refused = True
        compiling.append(1e6 * (time.thread_time() - begin))
        if refused:
            counts['refused'] += 1
            continue
        for test in row['tests']:
            matcher.reset()
            passed = True
            for token in tokenizer.tokenize_str(json.dumps(test['data'], separators=(',', ':'), ensure_ascii=False)):
                begin = time.thread_time()
                matcher.compute_bitmask()
                masks.append(1e6 * (time.thread_time() - begin))
                if not matcher.try_consume_tokens([token]):
                    passed = False
                    break
            passed = passed and matcher.is_accepting()
            if passed != test['valid']:
                counts['accepted' if passed else 'blocked'] += 1
    return {'schemas': len(rows), 'refused': counts['refused'], 'valid blocked': counts['blocked'], 'invalid accepted': counts['accepted'],
            **{f'{name} {label}': percentile(values, share) for name, values in (('compile', compiling), ('mask', masks))
               for label, share in (('p50', 0.5), ('p99', 0.99), ('p99.9', 0.999), ('max', 1.0))}}


def ours(program, rows, tokenizer_path):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, 'rows.jsonl'), 'w') as file:
            file.writelines(json.dumps(row) + '\n' for row in rows)
        done = subprocess.run([program, 'bench', 'grammar', '--data', folder, '--tokenizer', tokenizer_path, '--json'], check=True, capture_output=True)
    return {row['name'].removeprefix('grammar/'): row['value'] for row in json.loads(done.stdout)['rows']}


def main():
    program, data, tokenizer_path = sys.argv[1:4]
    rows = [json.loads(line) for line in text_of(data).splitlines() if line]
    rows = rows[:int(sys.argv[4])] if len(sys.argv) > 4 else rows
    tokenizer = ll.LLTokenizer(text_of(tokenizer_path))
    boards = {'deepinfer': ours(program, rows, tokenizer_path), f'llguidance {ll.get_version()}': neighbour(rows, tokenizer)}
    print(f'{"":20}' + ''.join(f'{name.split("@")[0]:>20}' for name in boards) + f'{"ratio":>10}')
    for name in next(reversed(boards.values())):
        first, second = (board.get(name, 0) for board in boards.values())
        ratio = f'{first / second:10.2f}' if second and name.startswith(('compile', 'mask')) else ''
        print(f'{name:20}{first:20,.1f}{second:20,.1f}{ratio}')


if __name__ == '__main__':
    main()
