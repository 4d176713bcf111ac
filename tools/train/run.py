#!/usr/bin/env python3
"""One command a stage.  run.py STAGE [--seconds N] [--work DIR] [more train.py arguments]

prep      --corpus DIR: tokenised corpus, needle passages, Engram map (CPU)
trial, pretrain, long, repair, pictures, dspark, confidence, probe: on all GPUs of this machine; each starts from the end of the one before
export    the newest weights to models/tiny-v41        golden, evalset    the tracked goldens and task sets
"""
import argparse
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODEL = f'{ROOT}/models/tiny-v41'
SECONDS = dict(trial=60, pretrain=325, long=110, repair=205, pictures=90, dspark=60, confidence=60, probe=40)
BEFORE = dict(long='pretrain', repair='long', pictures='repair', dspark='pictures', confidence='dspark', probe=None)


def call(*words):
    print(' '.join(words), flush=True)
    sys.exit(subprocess.call(words))


def gpus():
    try:
        return len([x for x in subprocess.run(['nvidia-smi', '-L'], capture_output=True, text=True).stdout.split('\n') if x])
    except FileNotFoundError:
        return 0


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('stage', choices=['prep', *SECONDS, 'export', 'golden', 'evalset'])
    ap.add_argument('--seconds', type=float)
    ap.add_argument('--work', default=f'{ROOT}/build/train')
    ap.add_argument('--corpus')
    a, more = ap.parse_known_args()
    data, out, state = (f'{a.work}/{n}' for n in ('data', 'out', 'state'))
    os.makedirs(data, exist_ok=True)
    if a.stage == 'prep':
        if not a.corpus:
            sys.exit('prep needs --corpus DIR')
        shutil.copyfile(f'{MODEL}/tokenizer.json', f'{data}/tokenizer.json')
        call(sys.executable, f'{HERE}/corpus.py', a.corpus, f'{data}/tokenizer.json', data)
    if a.stage == 'export':
        call(sys.executable, f'{HERE}/export.py', data, f'{out}/ck', MODEL)
    if a.stage == 'golden':
        call(sys.executable, f'{HERE}/golden.py', MODEL, f'{ROOT}/tests/golden/model-tiny-v41', '--ask', 'What is 12 + 30?', *more)
    if a.stage == 'evalset':
        call(sys.executable, f'{HERE}/evalset.py', f'{ROOT}/models/eval')
    if not os.path.exists(f'{data}/token_map.json'):
        sys.exit(f'{data} is empty: run the stage prep first')
    n = gpus()
    start = ['torchrun', '--standalone', f'--nproc-per-node={n}'] if n > 1 else [sys.executable]
    before = BEFORE.get(a.stage)
    ends = [f'{state}/{before}.end.pt', f'{out}/ck.0.pt'] if a.stage in BEFORE else []
    init = next((p for p in ends if os.path.exists(p)), None)
    words = ['--init', init.replace('ck.0.pt', 'ck')] if init and '--init' not in more else []
    call(*start, f'{HERE}/train.py', '--data', data, '--out', out, '--state', state, '--stages', f'{a.stage}:{a.seconds or SECONDS[a.stage]}',
         *(['--device', 'cpu'] if n == 0 and '--device' not in more else []), *words, *more)


if __name__ == '__main__':
    main()
