#!/usr/bin/env python3
"""tests/cli_test.py PROGRAM: the command line as a user meets it: exit codes, messages, pipes, Ctrl-C, the chat.
Last line `N passed, N failed`. Uses a scripted model where the answer does not matter."""
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import tempfile
import termios
import time

from cases import PROGRAM, ROOT, case, main

FOLDER = tempfile.TemporaryDirectory(prefix='deepinfer-cli-')


def has_gpu():
    with contextlib.suppress(OSError):
        return subprocess.run(['nvidia-smi', '-L'], capture_output=True).returncode == 0
    return False


def run(*words, stdin='', env=None, **more):
    environment = {**os.environ, 'XDG_STATE_HOME': FOLDER.name, **(env or {})}
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    done = subprocess.run([PROGRAM, *words], input=data, capture_output=True, timeout=120, env=environment, **more)
    done.out, done.err = done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')
    return done


def expect(done, code, out=None, err=None):
    assert done.returncode == code, f'exit code {done.returncode}, expected {code}; stderr: {done.err[:500]}'
    assert out is None or out in done.out, f'{out!r} not in output {done.out[:500]!r}'
    assert err is None or err in done.err, f'{err!r} not in stderr {done.err[:500]!r}'
    return done


def one_line_error(done, code, *parts):
    expect(done, code)
    lines = [l for l in done.err.split('\n') if l]
    assert len(lines) == 1 and lines[0].startswith('deepinfer: '), f'not one error line: {done.err[:500]!r}'
    for part in parts:
        assert part in lines[0], f'{part!r} not in {lines[0]!r}'


def path(name):
    return os.path.join(FOLDER.name, name)


def script(name='script.jsonl', *lines):
    with open(path(name), 'w') as file:
        file.write('\n'.join(('{"scripted": 1}', *lines)) + '\n')
    return 'scripted:' + path(name)


def hello():
    return script('hello.jsonl', '{"text": "Hello from the script."}')


def slow():
    return script('slow.jsonl', json.dumps({'text': 'word ' * 400, 'delay_ms': 20}))


# ---- words and flags ----------------------------------------------------------------------------------------------

@case
def version_and_help():
    expect(run('--version'), 0, 'deepinfer ')
    listing = expect(run('--help'), 0).out
    for command in 'run batch serve pull render parse tokenize detokenize inspect golden bench verify cache plan eval doctor'.split():
        assert command in listing, command
        text = expect(run(command, '--help'), 0, 'Examples:').out
        assert 'deepinfer ' + command in text, command


@case
def no_command_is_a_usage_error():
    expect(run(), 2, err='Examples:')


@case
def unknown_command_names_the_nearest():
    one_line_error(run('rnu'), 2, "unknown command 'rnu'", 'did you mean run?')
    one_line_error(run('xyzzyplugh'), 2, 'unknown command')


@case
def planned_command_says_so():
    one_line_error(run('simulate'), 1, 'simulate: not built yet')


@case
def unknown_flag_names_the_nearest():
    one_line_error(run('run', '--temprature', '0', 'hi'), 2, '--temprature', 'did you mean --temperature?')
    one_line_error(run('run', '--max-token=3', 'hi'), 2, 'did you mean --max-tokens?')


@case
def wrong_values_name_flag_value_and_range():
    one_line_error(run('run', '--temperature', '9', 'hi'), 2, '--temperature is a number from 0 to 2', "'9'")
    one_line_error(run('run', '--think', 'hihg', 'hi'), 2, 'did you mean high?')
    one_line_error(run('run', '--seed', 'x', 'hi'), 2, '--seed')
    one_line_error(run('run', '--device', 'gpu', 'hi'), 2, '--device')
    one_line_error(run('run', '--device', 'cuda:x', 'hi'), 2, '--device')
    if not has_gpu():
        one_line_error(run('run', '--device', 'cuda:0', 'hi'), 1, 'cuda', 'use --device cpu')
    expect(run('run', '--seed'), 2)


@case
def ranks_that_cannot_be():
    one_line_error(run('run', '--ranks', '0', 'hi'), 2, '--ranks', '1')
    one_line_error(run('run', '--ranks', '3', '--threads', '2', 'hi'), 2, '--ranks 3', 'at most --ranks 2', '--threads 3')
    one_line_error(run('run', '-m', hello(), '--ranks', '2', '--threads', '2', 'hi'), 1, 'no experts')
    one_line_error(run('run', '--ranks', '2', '--threads', '2', '--spec-verify', 'rejection', 'hi'), 1, 'rejection')
    alone = run('run', '--max-tokens', '24', '--seed', '5', 'Count to ten.')
    expect(run('run', '--ranks', '2', '--threads', '2', '--max-tokens', '24', '--seed', '5', 'Count to ten.'), 0, out=alone.out)


@case
def second_word_is_refused():
    one_line_error(run('run', 'two', 'words'), 2, "'words'", 'quote')


@case
def environment_aliases():
    model = hello()
    one_line_error(run('run', '-m', model, 'hi', env={'DEEPINFER_ACCELERATOR': 'ascend'}), 1, 'no ascend backend')
    expect(run('run', '-m', model, 'hi', env={'DEEPINFER_ACCELERATOR': 'cpu'}), 0, 'Hello')
    expect(run('run', '-m', model, 'hi', env={'DEEPINFER_ISA': 'portable'}), 0, 'Hello')
    one_line_error(run('run', '-m', model, 'hi', env={'DEEPINFER_ISA': 'mmx'}), 2, "unknown kernels 'mmx'; known are")
    expect(run('run', '-m', model, 'hi', env={'DEEPINFER_ACCELERATR': 'cpu'}), 0, err='DEEPINFER_ACCELERATOR')
    one_line_error(run('run', '-m', model, 'hi', env={'DEEPINFER_YOCO_PREFILL_KEEP_TOKENS': 'many'}), 2, 'KEEP_TOKENS=many')


# ---- plan ---------------------------------------------------------------------------------------------------------

def plan(*words):
    return run('plan', '--device', 'h200', *words)


@case
def plan_answers_first():
    shared = '--gpus 64 --streams 4096 --prompt 77000 --answer 720 --cached 96'.split()
    lines = expect(plan(*shared, '--price-per-hour', '2.5'), 0).out.split('\n')
    assert '510 GB of weights' in lines[0], lines[0]
    assert [l.split()[0] for l in lines[2:7]] == ['fits', 'speed', 'limit', 'split', 'cost'], lines[:8]
    assert 'yes: ' in lines[2] and 'GPU-hours a million tokens of prompts' in lines[6] and 'at 2.50 an hour' in lines[6]
    explained = expect(plan(*shared, '--explain'), 0, 'distinct experts of a layer = 384 (1 - (1 - 6/384)^').out
    for part in ('wo_a', 'exchange = rows x layers', 'KV pages', '56960 B', 'InferenceX', 'published, by others'):
        assert part in explained, part
    here = expect(run('plan', '-m', 'random:v41?layers=2&experts=12&hidden=512&engram_rows=0', '--no-measure'), 0, 'fits    yes').out
    assert '--no-measure' in here


@case
def plan_json_has_the_same_rows():
    done = json.loads(expect(plan('--gpus', '64', '--streams', '4096', '--drafts', '5', '--accepted', '3.51', '--json'), 0).out)
    assert done['command'] == 'plan' and {'version', 'machine', 'rows'} <= done.keys()
    rows = {row['name']: row for row in done['rows']}
    for row in rows.values():
        assert {'name', 'value', 'unit', 'limit', 'share', 'baseline', 'ratio'} == row.keys(), row
    assert rows['fits']['value'] == 1 and abs(rows['disk/checkpoint']['value'] - 510.286023) < 1e-9
    assert rows['decode/gpu']['value'] <= rows['decode/gpu']['limit'] and rows['memory/all']['limit'] == 141
    assert rows['split/prefill_per_decode']['value'] > 0
    # Drafts send their rows, too: between machines that is the limit, and experts over fewer GPUs are quicker.
    assert rows['split/experts_over']['value'] < 64 and rows['step/exchange']['value'] == rows['step/all']['value']
    least = json.loads(expect(plan('--gpus', '64', '--target-tokens-per-user', '60', '--json'), 0).out)['rows']
    assert [row['value'] >= 60 for row in least if row['name'] == 'decode/user'] == [True]


@case
def plan_names_what_is_short():
    short = run('plan', '--device', 'h200')
    one_line_error(short, 1, 'does not fit: device memory is short by')
    assert 'shared by 4 GPUs would fit' in short.out, short.out[:400]
    one_line_error(plan('--gpus', '64', '--host-memory', '100'), 1, 'main memory beside the GPUs is short by')
    tables = plan('--gpus', '64', '--host-memory', '100')
    assert 'each machine holds all tables' in tables.out and '--streams' not in tables.out.split('\n')[2], tables.out[:400]
    one_line_error(run('plan', '-m', 'random:v41?experts=96', '--no-measure', '--streams', '4000', '--context', '1048576'), 1,
                   'main memory is short by')


@case
def plan_counts_the_streams():
    # A target asks for no more streams than memory holds, and says so.
    held = expect(plan(*'--gpus 64 --prompt 77000 --answer 720 --target-tokens-per-user 5'.split()), 0, 'fits    yes').out
    assert 'memory, not speed, limits the streams' in held, held[:600]
    one = json.loads(expect(plan('--gpus', '64', '--streams', '1', '--json'), 0).out)['rows']
    rows = {row['name']: row['value'] for row in one}
    assert abs(rows['decode/all'] / rows['decode/user'] - 1) < 1e-9, rows


@case
def plan_refuses_what_makes_no_sense():
    one_line_error(run('plan', '--device', 'h100'), 1, '--device h100: no such card or file')
    one_line_error(run('plan', '-m', path('none')), 1, 'no such model')
    one_line_error(run('plan', '--gpus', '2'), 2, '--gpus 2 is of a card')
    one_line_error(plan('--accepted', '3'), 2, 'add --drafts')
    one_line_error(plan('--drafts', '2', '--accepted', '4'), 2, 'at most 3')
    one_line_error(plan('--drafts', '6'), 2, 'the model drafts at most 5')
    one_line_error(plan('--streams', '2', '--target-tokens-per-user', '5'), 2, 'give it or --streams')
    one_line_error(plan('--prompt', '2000000'), 2, 'more than the 1048576 the model holds')
    one_line_error(plan('--context', '100'), 2, '--context 100 is less')
    with open(path('card.json'), 'w') as file:
        file.write('{"memory_gb": 80, "read_gb_s": 3000, "fp8_tflops": 1000, "wde_tflops": 500}')
    one_line_error(run('plan', '--device', path('card.json')), 2, "unknown key 'wde_tflops'", 'wide_tflops')
    with open(path('card.json'), 'w') as file:
        file.write('{"memory_gb": 80, "read_gb_s": 3000, "fp8_tflops": 1000, "wide_tflops": 500}')
    one_line_error(run('plan', '--device', path('card.json'), '--gpus', '2'), 2, 'does not say network_gb_s')
    os.makedirs(path('broken'), exist_ok=True)
    with open(os.path.join(ROOT, 'models', 'tiny-v41', 'config.json')) as config, open(path('broken/config.json'), 'w') as file:
        file.write(config.read())
    expect(run('plan', '-m', path('broken'), '--no-measure'), 0, 'not told')
    with open(path('broken/model.safetensors'), 'w') as file:
        file.write('no weights')
    assert run('plan', '-m', path('broken'), '--no-measure').returncode != 0


# ---- run ----------------------------------------------------------------------------------------------------------

@case
def run_prints_the_answer():
    assert expect(run('run', '-m', hello(), 'hi'), 0).out == 'Hello from the script.\n'


@case
def run_reads_standard_input():
    expect(run('run', '-m', hello(), stdin='hi\n'), 0, 'Hello from the script.')


@case
def empty_and_invalid_prompts():
    one_line_error(run('run', '-m', hello(), ''), 2, 'empty')
    one_line_error(run('run', '-m', hello(), stdin=''), 2, 'empty')
    one_line_error(run('run', '-m', hello(), stdin=b'\xff\xfe hi'), 2, 'UTF-8')
    one_line_error(run('run', '-m', hello(), '--system', b'\xff', 'hi'), 2, 'UTF-8')


@case
def too_long_prompt():
    one_line_error(run('run', '--context', '256', stdin='word ' * 2000), 1, 'context')


@case
def missing_and_broken_models():
    one_line_error(run('run', '-m', path('nothing'), 'hi'), 1, 'nothing')
    one_line_error(run('run', '-m', 'scripted:' + path('nothing'), 'hi'), 1, 'nothing')
    one_line_error(run('run', '-m', 'random:v41?layrs=2', 'hi'), 2, 'layers')
    script('broken.jsonl', '{"text": ')
    one_line_error(run('run', '-m', 'scripted:' + path('broken.jsonl'), 'hi'), 2, 'broken.jsonl:2')


@case
def habits_of_other_programs_are_told_the_way():
    expect(run(), 2, err='serve')  # the commands are listed
    one_line_error(run('serve', 'models'), 2, '-m models')
    one_line_error(run('serve', '--max-model-len', '100'), 2, '--context')
    one_line_error(run('run', '-m', 'org/model', 'hi'), 1, 'pull org/model')
    one_line_error(run('run', '-m', 'README.md', 'hi'), 1, 'a file')
    one_line_error(run('serve', '--cors', 'foo', '-m', hello()), 2, 'https://')
    one_line_error(run('serve', '--data', '/proc/x', '--port', '0', '-m', hello()), 1, '/proc/x')
    expect(run('run', '-m', hello(), '--', '-5 + 3'), 0, 'Hello from the script.')
    expect(run('detokenize', '2282', '14', '1347', '3'), 0, 'Hello, world!')
    expect(run('run', '-m', hello(), '--store', 'a/kv', 'hi', cwd=FOLDER.name), 0, 'Hello from the script.')
    bad = path('bad.jsonl')
    with open(bad, 'w') as out:
        out.write('no JSON\n')
    expect(run('batch', bad, '-o', path('bad-out.jsonl'), '-m', hello()), 1, err='the first error: line 1')
    one_line_error(run('batch', bad, '-o', '-', '-m', hello()), 2, 'files')


@case
def stats_go_to_stderr():
    done = expect(run('run', '-m', hello(), '--stats', 'hi'), 0, err='tokens/s')
    assert done.out == 'Hello from the script.\n' and 'peak memory' in done.err and 'first token' in done.err


@case
def full_output_is_an_error():
    with open('/dev/full', 'w') as full:
        done = subprocess.run([PROGRAM, 'run', '-m', hello(), 'hi'], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b'standard output' in done.stderr, (done.returncode, done.stderr)


@case
def interrupt_ends_with_130():
    process = subprocess.Popen([PROGRAM, 'run', '-m', slow(), 'hi'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = process.stdout.read(4)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=20)
    assert first == b'word' and process.returncode == 130 and len(rest) < 1900, (first, process.returncode, len(rest))


@case
def shipped_model_answers():
    expect(run('run', '--temperature', '0', 'What is 12 + 30?'), 0, '42')


@case
def same_seed_same_answer():
    words = ['run', '--temperature', '1', '--max-tokens', '40', 'Tell me a short story about a fox.']
    one, two, other = (run(*words[:1], '--seed', seed, *words[1:]) for seed in ('7', '7', '8'))
    assert expect(one, 0).out == expect(two, 0).out != expect(other, 0).out


# ---- the chat -----------------------------------------------------------------------------------------------------

class Chat:
    def __init__(self, model):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, 'run', '-m', model], {**os.environ, 'TERM': 'xterm', 'XDG_STATE_HOME': FOLDER.name})
        self.pid, self.text = pid, ''

    def until(self, wanted, seconds=20):
        end = time.time() + seconds
        while wanted not in self.text:
            ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.time()))
            assert ready, f'{wanted!r} did not come; so far: {self.text[-500:]!r}'
            try:
                data = os.read(self.terminal, 4096)
            except OSError:
                data = b''
            assert data, f'ended without {wanted!r}: {self.text[-500:]!r}'
            self.text += data.decode(errors='replace')
        before, _, self.text = self.text.partition(wanted)
        if wanted == '> ':
            self.wait_for_editor()
        return before

    def wait_for_editor(self):
        # The prompt is shown a moment before the editor takes the terminal over, and what is typed in between is lost.
        end = time.time() + 10
        while time.time() < end and termios.tcgetattr(self.terminal)[3] & termios.ICANON:
            time.sleep(0.01)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait(self):
        end = time.time() + 20
        while time.time() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            ready, _, _ = select.select([self.terminal], [], [], 0.05)
            if ready:
                try:
                    self.text += os.read(self.terminal, 4096).decode(errors='replace')
                except OSError:
                    pass
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f'the chat did not end; it showed {self.text[-500:]!r}')


@case
def chat_answers_and_leaves():
    chat = Chat(hello())
    chat.until('> ')
    chat.type('hi\n')
    chat.until('Hello from the script.')
    chat.until('> ')
    chat.type('/helpp\n')
    chat.until('did you mean /help?')
    chat.type('/exit\n')
    assert chat.wait() == 0


@case
def chat_leaves_at_end_of_input():
    chat = Chat(hello())
    chat.until('> ')
    chat.type('\x04')
    assert chat.wait() == 0


@case
def chat_interrupt_stops_the_answer_only():
    chat = Chat(slow())
    chat.until('> ')
    chat.type('hi\n')
    chat.until('word word')
    chat.type('\x03')
    chat.until('> ')
    chat.type('typed\x03')
    chat.until('> ')
    chat.type('/exit\n')
    assert chat.wait() == 0


@case
def chat_edits_utf8_and_keeps_history():
    chat = Chat(script('echo.jsonl', '{"match": "grüße", "text": "matched"}', '{"text": "other"}'))
    chat.until('> ')
    chat.type('grüßx\x7fe\n')
    chat.until('matched')
    chat.until('> ')
    chat.type('\x1b[A\n')
    chat.until('matched')
    chat.type('/exit\n')
    assert chat.wait() == 0
    chat = Chat(script('echo.jsonl', '{"match": "grüße", "text": "matched"}', '{"text": "other"}'))
    chat.until('> ')
    chat.type('\x1b[A\x1b[A\n')
    chat.until('matched')
    chat.type('\x04')
    assert chat.wait() == 0


# ---- batch --------------------------------------------------------------------------------------------------------

def request(name, text='hi', **body):
    return json.dumps({'custom_id': name, 'method': 'POST', 'url': '/v1/chat/completions',
                       'body': {'model': 'm', 'messages': [{'role': 'user', 'content': text}],
                                'thinking': {'type': 'disabled'}, **body}})


def batch_file(*lines):
    with open(path('in.jsonl'), 'w') as file:
        file.write('\n'.join(lines) + '\n')
    if os.path.exists(path('out.jsonl')):
        os.remove(path('out.jsonl'))
    return ['batch', path('in.jsonl'), '-o', path('out.jsonl'), '-m']


def records():
    with open(path('out.jsonl')) as file:
        return [json.loads(line) for line in file]


@case
def batch_keeps_order_and_survives_bad_lines():
    lines = [request(f'r{i}') for i in range(40)]
    lines[3] = '{"custom_id": '
    lines[5] = request('r5', temperature=9)
    lines[7] = request('r6')
    lines[9] = json.dumps({'custom_id': 'r9', 'method': 'GET', 'url': '/v1/chat/completions', 'body': {}})
    expect(run(*batch_file(*lines), hello()), 0, err='36 answered, 4 with an error')
    got = records()
    assert [r['custom_id'] for r in got] == [f'r{i}' if i not in (3, 7) else None for i in range(40)]
    assert got[0]['response']['status_code'] == 200
    assert got[0]['response']['body']['choices'][0]['message']['content'] == 'Hello from the script.'
    assert got[3]['error']['code'] == 'invalid_json' and got[3]['error']['line'] == 4
    assert got[5]['response']['status_code'] == 400 and 'temperature' in got[5]['response']['body']['error']['message']
    assert got[7]['error']['code'] == 'repeated_custom_id' and got[9]['error']['code'] == 'invalid_request'
    before = open(path('out.jsonl')).read()
    expect(run('batch', path('in.jsonl'), '-o', path('out.jsonl'), '-m', hello()), 0, err='0 answered, 0 with an error, 40 kept')
    assert open(path('out.jsonl')).read() == before


@case
def batch_resumes_after_a_cut_off_line():
    words = batch_file(*[request(f'r{i}') for i in range(10)])
    expect(run(*words, hello()), 0)
    whole = open(path('out.jsonl')).read().split('\n')
    with open(path('out.jsonl'), 'w') as file:
        file.write('\n'.join(whole[:4]) + '\n' + whole[4][:30])
    expect(run(*words, hello()), 0, err='6 answered, 0 with an error, 4 kept')
    assert [r['custom_id'] for r in records()] == [f'r{i}' for i in range(10)]


@case
def batch_interrupted_goes_on():
    words = batch_file(*[request(f'r{i}') for i in range(300)])
    model = script('short.jsonl', json.dumps({'text': 'word ' * 10, 'delay_ms': 5}))
    process = subprocess.Popen([PROGRAM, *words, model], stderr=subprocess.PIPE)
    deadline = time.time() + 60
    while time.time() < deadline and (not os.path.exists(path('out.jsonl')) or os.path.getsize(path('out.jsonl')) == 0):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b'again' in err, (process.returncode, err)
    done = len(records())
    assert 0 < done < 300, done
    expect(run(*words, hello()), 0, err=f'{done} kept')
    assert [r['custom_id'] for r in records()] == [f'r{i}' for i in range(300)]


@case
def batch_output_faults():
    words = batch_file(request('a'))
    one_line_error(run(words[0], words[1], '-m', hello()), 2, '-o')
    one_line_error(run('batch', path('none.jsonl'), '-o', path('o'), '-m', hello()), 1, 'none.jsonl')
    one_line_error(run('batch', path('in.jsonl'), '-o', path('in.jsonl'), '-m', hello()), 2, 'same file')
    one_line_error(run('batch', path('in.jsonl'), '-o', path('no/such/folder'), '-m', hello()), 1, 'no/such/folder')
    one_line_error(run('batch', path('in.jsonl'), '-o', '/dev/full', '-m', hello()), 1, '/dev/full', 'space')


# ---- recipe steps and checkpoints -----------------------------------------------------------------------------------

@case
def tokenize_round_trip():
    for text in ['Hello, world!', '日本語 text\n\n  x', '👩‍👩‍👧 e\u0301', '<｜User｜>']:
        ids = expect(run('tokenize', text), 0).out
        assert expect(run('detokenize', stdin=ids), 0).out == text, text
    assert len(expect(run('tokenize', '<think>'), 0).out.split()) == 1
    assert len(expect(run('tokenize', '--content', '<think>'), 0).out.split()) > 1
    one_line_error(run('detokenize', '99999999'), 2, '99999999')
    one_line_error(run('detokenize', 'abc'), 2, 'abc')
    assert json.loads(expect(run('tokenize', '--json', 'Hi'), 0).out)['count'] >= 1


@case
def render_and_parse():
    body = json.dumps({'model': 'any', 'messages': [{'role': 'user', 'content': 'Hi'}], 'thinking': {'type': 'disabled'}})
    expect(run('render', stdin=body), 0, '<｜User｜>Hi<｜Assistant｜></think>')
    assert len(json.loads(expect(run('render', '--json', stdin=body), 0).out)['token_ids']) > 3
    one_line_error(run('render', stdin='{'), 1, 'standard input')
    events = [json.loads(l) for l in expect(run('parse', '--think', stdin='Hm.</think>42'), 0).out.split('\n') if l]
    assert [(e['event'], e['text']) for e in events] == [('reasoning', 'Hm.'), ('content', '42')], events


@case
def inspect_shows_and_refuses():
    model = os.path.join(ROOT, 'models/tiny-v41')
    expect(run('inspect', model), 0, 'complete')
    assert json.loads(expect(run('inspect', model, '--json'), 0).out)['problems'] == []
    expect(run('inspect', path('nothing')), 1, err='nothing')
    broken = path('broken')
    os.makedirs(broken, exist_ok=True)
    for name in os.listdir(model):
        source = os.path.join(model, name)
        if os.path.isfile(source) and not os.path.exists(os.path.join(broken, name)):
            os.symlink(source, os.path.join(broken, name))
    shard = os.path.join(broken, 'model-00002-of-00003.safetensors')
    os.remove(shard)
    one_line_error(run('inspect', broken), 1, 'model-00002-of-00003.safetensors')
    with open(os.path.join(model, 'model-00002-of-00003.safetensors'), 'rb') as source, open(shard, 'wb') as target:
        target.write(source.read()[:5_000_000])
    one_line_error(run('inspect', broken), 1, 'model-00002-of-00003.safetensors')
    one_line_error(run('run', '-m', broken, 'hi'), 1, 'model-00002-of-00003.safetensors')


@case
def golden_reads_files_and_folders():
    done = expect(run('golden', os.path.join(ROOT, 'tests/golden/recipe/tokenize.jsonl.zst')), 0)
    assert done.out.rstrip().endswith(', 0 failed') and not done.out.startswith('0 passed'), done.out[-200:]
    wrong = path('wrong.jsonl')
    with open(wrong, 'w') as file:
        file.write('{"id": "bad/1", "kind": "encode/ascii", "op": "encode", "text": "Hello", "ids": [1]}\n')
    done = expect(run('golden', wrong), 1, 'bad/1')
    assert done.out.rstrip().endswith('0 passed, 1 failed'), done.out
    one_line_error(run('golden', path('none.jsonl')), 1, 'none.jsonl')


@case
def bench_prints_figures():
    for kind, flags, names in (('decode', ['--tokens', '8'], ['decode/1', 'decode/32', 'decode/1/step']),
                               ('prefill', [], ['prefill/128', 'prefill/2048', 'prefill/512/first_token']),
                               ('serve', ['--streams', '8'], ['serve/whole answers', 'serve/streamed tokens, 8 streams', 'serve/first byte p99'])):
        figures = json.loads(expect(run('bench', kind, '--json', '--repeats', '1', *flags), 0).out)
        assert set(figures) == {'command', 'version', 'machine', 'rows'} and figures['command'] == 'bench ' + kind
        assert {'cpu', 'processors'} <= set(figures['machine'])
        rows = {row['name']: row for row in figures['rows']}
        for name in names:
            assert rows[name]['value'] > 0 and isinstance(rows[name]['unit'], str), (name, rows)
        for row in figures['rows']:
            assert set(row) == {'name', 'value', 'unit', 'limit', 'share', 'baseline', 'ratio'}, row
            assert (row['baseline'] is None) == (row['ratio'] is None), row
    # Of experts with places the stored bytes stay in use, beside those places.
    few = json.loads(expect(run('bench', 'decode', '--json', '--streams', '1', '--tokens', '8', '--expert-memory', '0.001'), 0).out)
    ratios = {row['name']: row['ratio'] for row in few['rows']}
    assert 1 < ratios['load/packed'] < 1.2 and ratios['load/repack'] > 0, ratios
    one_line_error(run('bench', 'decod'), 2, 'did you mean decode?')


@case
def works_from_any_folder_without_home():
    environment = {k: v for k, v in os.environ.items() if k not in ('HOME', 'XDG_STATE_HOME', 'LANG', 'LC_ALL')}
    done = subprocess.run([PROGRAM, 'run', '-m', hello(), 'hi'], cwd='/', env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout == b'Hello from the script.\n', (done.returncode, done.stderr)


main()
