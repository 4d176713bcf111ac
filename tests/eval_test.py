#!/usr/bin/env python3
"""tests/eval_test.py PROGRAM [CASE...]: `deepinfer eval` against scripted models and against a small server that answers,
limits, dies, hangs and talks nonsense. Last line `N passed, N failed, N left out`."""
import ctypes
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

from cases import PROGRAM, ROOT, LeftOut, case, main
from mock_server import Server, completion, question_of

FOLDER = tempfile.TemporaryDirectory(prefix='deepinfer-eval-')


def run(*words, timeout=120):
    done = subprocess.run([PROGRAM, 'eval', *words], capture_output=True, timeout=timeout)
    done.out, done.err = done.stdout.decode(errors='replace'), done.stderr.decode(errors='replace')
    return done


def expect(done, code, out=None, err=None):
    assert done.returncode == code, f'exit code {done.returncode}, expected {code}; stdout {done.out[-500:]!r} stderr {done.err[-500:]!r}'
    assert out is None or out in done.out, f'{out!r} not in output {done.out[-800:]!r}'
    assert err is None or err in done.err, f'{err!r} not in stderr {done.err[-800:]!r}'
    return done


def refused(done, code, *parts):
    expect(done, code)
    lines = [l for l in done.err.split('\n') if l]
    assert len(lines) == 1 and lines[0].startswith('deepinfer: '), f'not one error line: {done.err[:500]!r}'
    for part in parts:
        assert part in lines[0], f'{part!r} not in {lines[0]!r}'


def path(name):
    return os.path.join(FOLDER.name, name)


def write(name, *lines):
    with open(path(name), 'w') as file:
        file.writelines((line if isinstance(line, str) else json.dumps(line)) + '\n' for line in lines)
    return path(name)


def task(number, kind='sum', question=None, check=None, **more):
    return {'id': f'{kind}-{number:03}', 'kind': kind, 'messages': [{'role': 'user', 'content': question or f'Question {number}?'}],
            'thinking': False, 'check': check or {'type': 'number', 'value': number}, **more}


def records(name):
    with open(path(name)) as file:
        return [json.loads(line) for line in file]


def rows(done):
    return {row['name']: row['value'] for row in json.loads(done.out)['rows']}


def hello(delay_ms=0, words=1):
    file = write(f'hello{delay_ms}.jsonl', {'scripted': 1}, {'text': 'word ' * (words - 1) + 'The answer is 7.', 'delay_ms': delay_ms})
    return 'scripted:' + file


def right_number(body, _):
    return completion('It is ' + question_of(body).split()[1].rstrip('?') + '.')


def numbers(count, name='numbers.jsonl'):
    return write(name, *[task(i) for i in range(count)])


# ---- the engine -----------------------------------------------------------------------------------------------------

@case
def tasks_with_the_engine():
    data = write('five.jsonl',
                 task(7), task(8),
                 task(0, 'reading', check={'type': 'exact', 'value': 'The answer is 7.'}),
                 task(1, 'reading', check={'type': 'contains', 'value': ['ANSWER', '7']}),
                 task(2, 'object', check={'type': 'json', 'value': {'a': 1}}))
    done = expect(run('tasks', '--data', data, '-m', hello(), '--json'), 0)
    assert json.loads(done.out)['command'] == 'eval tasks'
    got = rows(done)
    assert got['tasks/sum'] == 0.5 and got['tasks/reading'] == 1 and got['tasks/object'] == 0 and got['tasks/all'] == 0.6, got
    assert got['tasks/all/cases'] == 5 and 0.2 < got['tasks/all/low'] < 0.6 < got['tasks/all/high'] < 0.9, got
    assert got['tasks/tokens_per_second'] > 0
    expect(run('tasks', '--data', data, '-m', hello()), 0, 'sum ')


@case
def pictures_are_left_out_with_the_reason():
    picture = task(1, 'picture')
    picture['messages'][0]['content'] = [{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,iVBORw0KGgo='}},
                                         {'type': 'text', 'text': 'What is it?'}]
    data = write('picture.jsonl', task(7), picture)
    with Server(lambda body, n: (400, {}, b'{"error": {"message": "no images here"}}') if 'image_url' in json.dumps(body)
                else completion('7')) as server:
        done = expect(run('tasks', '--data', data, '--url', server.url, '-o', path('picture.out')), 0, 'left out: ')
        assert 'no images here' in done.out, done.out
    assert [r['left_out'] for r in records('picture.out')[1:] if r['kind'] == 'picture'] == [True]


@case
def limit_and_kinds():
    data = write('kinds.jsonl', *[task(i, kind) for kind in ('sum', 'list', 'json') for i in range(4)])
    got = rows(expect(run('tasks', '--data', data, '-m', hello(), '--json', '--limit', '2', '--kinds', 'sum, json'), 0))
    assert got['tasks/sum/cases'] == 2 and got['tasks/json/cases'] == 2 and 'tasks/list' not in got, got
    refused(run('tasks', '--data', data, '-m', hello(), '--kinds', 'sum,lsit'), 2, "'lsit'", 'did you mean list?')


@case
def a_folder_is_read_in_order():
    os.makedirs(path('folder'), exist_ok=True)
    for kind in ('b', 'a'):
        write(f'folder/{kind}.jsonl', task(7, kind))
    out = expect(run('tasks', '--data', path('folder'), '-m', hello()), 0).out
    assert out.index('\na ') < out.index('\nb '), out
    os.makedirs(path('empty-folder'), exist_ok=True)
    refused(run('tasks', '--data', path('empty-folder'), '-m', hello()), 1, 'empty-folder', 'jsonl')


@case
def thresholds():
    data = write('threshold.jsonl', task(7), task(8), task(7, 'list'))
    words = ('tasks', '--data', data, '-m', hello())
    expect(run(*words, '--threshold', write('low.toml', 'sum = 0.5', '[gsm8k]', 'gsm8k = 1.0')), 0)
    expect(run(*words, '--threshold', write('table.toml', '[tasks]', 'sum = 0.5', 'all = 0.6')), 0)
    expect(run(*words, '--threshold', write('low.json', {'sum': 0.5, 'list': 1})), 0)
    done = expect(run(*words, '--threshold', write('high.toml', 'sum = 0.51  # half', 'all = 0.9')), 1, err='sum: 50.0 % (1 of 2), at least 51.0 %')
    assert 'all: 66.7 %' in done.err, done.err
    expect(run(*words, '--kinds', 'list', '--threshold', path('high.toml')), 0)
    refused(run(*words, '--threshold', write('kind.toml', 'smu = 0.5')), 2, "'smu'", 'did you mean sum?')
    refused(run(*words, '--threshold', write('value.toml', 'sum = "half"')), 2, 'sum', 'share')
    refused(run(*words, '--threshold', write('value.toml', 'sum = 95')), 2, 'from 0 to 1')
    refused(run(*words, '--threshold', write('broken.toml', 'sum 0.5')), 1, 'broken.toml:1')
    refused(run(*words, '--threshold', write('broken.json', '{')), 1, 'broken.json')
    refused(run(*words, '--threshold', path('nothing.toml')), 1, 'nothing.toml')


@case
def an_answer_without_end_is_wrong():
    data = write('long.jsonl', task(7))
    expect(run('tasks', '--data', data, '-m', hello(words=50), '--max-tokens', '5', '-o', path('long.out')), 0)
    record = records('long.out')[1]
    assert record['right'] is False and record['ended'] is False and 'no end within 5 tokens' in record['why'], record


@case
def engine_faults_are_errors_not_wrong_answers():
    file = write('fault.jsonl', {'scripted': 1}, {'text': 'a b c', 'faults': [{'token': 1, 'kind': 'nan'}]})
    done = expect(run('tasks', '--data', numbers(3), '-m', 'scripted:' + file, '--json'), 1, err='3 cases have no answer')
    assert rows(done)['tasks/all/errors'] == 3 and rows(done)['tasks/all/cases'] == 0


# ---- bad input ------------------------------------------------------------------------------------------------------

@case
def bad_data_names_the_line():
    def bad(line, *parts, suite='tasks'):
        refused(run(suite, '--data', write('bad.jsonl', task(1) if suite == 'tasks' else '', line), '-m', hello()), 1, 'bad.jsonl:2', *parts)
    bad('{"id": ', 'JSON')
    bad('[1]', 'object')
    bad(task(1), '"sum-001"', 'used before')
    bad({**task(2), 'check': {'type': 'nubmer', 'value': 1}}, "'nubmer'", 'did you mean number?')
    bad({**task(2), 'check': {'type': 'number', 'value': 'x'}}, 'number')
    bad({**task(2), 'check': {'type': 'contains', 'value': []}}, 'list of strings')
    bad({**task(2), 'check': {'type': 'tool_call', 'value': [{'name': 'x'}]}}, 'arguments')
    bad({**task(2), 'messages': []}, 'messages')
    bad({**task(2), 'kind': ''}, 'kind')
    bad({'question': 'x', 'answer': 'many'}, 'no number', suite='gsm8k')
    bad({'problem': 'x', 'answer': '1000'}, '0 to 999', suite='aime')
    bad({'Question': 'x', 'Correct Answer': 'a'}, 'Incorrect Answer 1', suite='gpqa')
    bad({'question': 'x', 'answer': 'a', 'answer_type': 'essay'}, 'answer_type', suite='hle')
    bad({'task_id': '1', 'prompt': 'def f():', 'test': 'x', 'entry_point': 'g'}, 'entry_point', suite='humaneval')
    with open(path('bad.jsonl'), 'wb') as file:
        file.write(json.dumps(task(1)).encode() + b'\n{"id": "\xff"}\n')
    refused(run('tasks', '--data', path('bad.jsonl'), '-m', hello()), 1, 'bad.jsonl:2', 'UTF-8')


@case
def bad_usage():
    refused(run('taks', '--data', 'x'), 2, 'did you mean tasks?')
    refused(run('gsm8k'), 2, '--data')
    refused(run('gsm8k', '--data', path('nothing.jsonl')), 1, 'nothing.jsonl')
    refused(run('tasks', '--data', write('empty.jsonl')), 1, 'no case')
    refused(run('tasks', '--data', numbers(1), '--body', '[1]'), 2, '--body')
    refused(run('tasks', '--data', numbers(1), '--think', 'hihg'), 2, 'did you mean high?')
    refused(run('tasks', '--data', numbers(1), '-m', path('no-model')), 1, 'no-model')
    expect(run('--help'), 0, 'Examples:')


# ---- records --------------------------------------------------------------------------------------------------------

@case
def records_are_continued():
    data = numbers(20)
    with Server(right_number) as server:
        words = ('tasks', '--data', data, '--url', server.url, '-o', path('continue.out'))
        expect(run(*words, '--limit', '12'), 0)
        assert server.requests == 12
        whole = open(path('continue.out')).read()
        lines = whole.split('\n')
        with open(path('continue.out'), 'w') as file:   # as kill -9 in the middle of a write leaves it
            file.write('\n'.join(lines[:8]) + '\n' + lines[8][:40])
        done = expect(run(*words, '--json'), 0)
        assert server.requests == 12 + 13, server.requests
        assert rows(done)['tasks/all/cases'] == 20 and rows(done)['tasks/all'] == 1
    got = [r['id'] for r in records('continue.out')[1:]]
    assert sorted(got) == sorted(set(got)) and len(got) == 20, got
    record = records('continue.out')[1]
    for key in 'id kind case right why answer prompt_tokens completion_tokens seconds error'.split():
        assert key in record, key


@case
def records_of_something_else_are_refused():
    data = numbers(2)
    with Server(right_number, models=('mock', 'other')) as server:
        plain = ('tasks', '--data', data, '--url', server.url, '-o', path('bound.out'))
        words = (*plain, '--served-model', 'mock')
        expect(run(*words), 0)
        before = open(path('bound.out')).read()
        refused(run(*words, '--temperature', '0.5'), 2, 'bound.out', 'temperature 0, now 0.5')
        refused(run(*plain, '--served-model', 'other'), 2, 'model "mock", now "other"')
        refused(run(*words, '--think', 'high'), 2, 'think')
        write('numbers.jsonl', task(0), {**task(1), 'check': {'type': 'number', 'value': 5}})
        refused(run(*words), 2, 'bound.out:', '"sum-001"', 'another question')
        assert open(path('bound.out')).read() == before
        refused(run(*plain[:-1], write('diary.txt', 'Dear diary'), '--served-model', 'mock'), 2, 'diary.txt')
        assert open(path('diary.txt')).read() == 'Dear diary\n'
    refused(run('gsm8k', '--data', write('g.jsonl', {'question': 'x', 'answer': '1'}), '-m', hello(), '-o', path('bound.out')), 2, 'suite')


@case
def full_disk():
    done = expect(run('tasks', '--data', numbers(3), '-m', hello(), '-o', '/dev/full'), 1, err='/dev/full')
    assert 'space' in done.err
    refused(run('tasks', '--data', numbers(3), '-m', hello(), '-o', path('no/folder')), 1, 'no/folder')


@case
def interrupted_then_continued():
    data = numbers(200)
    words = ('tasks', '--data', data, '-m', hello(delay_ms=5, words=5), '-o', path('stop.out'), '--concurrency', '4')
    process = subprocess.Popen([PROGRAM, 'eval', *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.time() + 60
    while time.time() < deadline and (not os.path.exists(path('stop.out')) or len(open(path('stop.out')).read().split('\n')) < 5):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b'interrupted' in err and b'sum' in out, (process.returncode, out, err)
    done = len(records('stop.out')) - 1
    assert 0 < done < 200, done
    expect(run(*words), 0, f'{done} verdicts of an earlier run')
    assert len({r['id'] for r in records('stop.out')[1:]}) == 200 == len(records('stop.out')) - 1


@case
def interrupted_while_the_server_hangs():
    with Server(lambda body, n: right_number(body, n) if n <= 3 else 'hang') as server:
        process = subprocess.Popen([PROGRAM, 'eval', 'tasks', '--data', numbers(9), '--url', server.url, '-o', path('hang.out'),
                                    '--concurrency', '2'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.time() + 60
        while time.time() < deadline and server.requests < 5:
            time.sleep(0.01)
        time.sleep(0.2)
        begin = time.time()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130 and time.time() - begin < 3, (process.returncode, err)
    assert len(records('hang.out')) == 4


@case
def killed_then_continued():
    data = numbers(100)
    with Server(lambda body, n: (time.sleep(0.01), right_number(body, n))[1]) as server:
        words = ('tasks', '--data', data, '--url', server.url, '-o', path('kill.out'), '--concurrency', '4')
        process = subprocess.Popen([PROGRAM, 'eval', *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while server.requests < 30:
            time.sleep(0.01)
        process.kill()
        process.wait()
        kept = open(path('kill.out')).read().count('"right":true')
        assert 20 <= kept <= 60, kept
        expect(run(*words), 0, f'{kept} verdicts of an earlier run')


# ---- servers --------------------------------------------------------------------------------------------------------

@case
def requests_are_as_documented():
    data = write('request.jsonl', {**task(1), 'thinking': True}, task(2))
    key = write('key', 'secret')
    with Server(right_number) as server:
        expect(run('tasks', '--data', data, '--url', server.url + '/v1/', '--key-file', key, '--seed', '5', '--concurrency', '1',
                   '--body', '{"top_k": 1, "seed": null}'), 0)
        (headers, first), (_, second) = server.bodies
    assert headers['authorization'] == 'Bearer secret' and first['model'] == 'mock'
    assert first['thinking'] == {'type': 'enabled'} and second['thinking'] == {'type': 'disabled'}
    assert first['temperature'] == 0 and first['max_tokens'] == 256 and first['top_k'] == 1 and 'seed' not in first, first


@case
def reasoning_is_not_judged():
    data = write('reason.jsonl', task(1), task(2))
    with Server(lambda body, n: completion('<think>Could be 9.</think>\n1') if question_of(body) == 'Question 1?'
                else completion('2', reasoning_content='Or 9')) as server:
        expect(run('tasks', '--data', data, '--url', server.url, '-o', path('reason.out')), 0)
    got = {r['id']: (r['right'], r['reasoning']) for r in records('reason.out')[1:]}
    assert got == {'sum-001': (True, 'Could be 9.'), 'sum-002': (True, 'Or 9')}, got


@case
def tool_calls_are_compared():
    check = {'type': 'tool_call', 'value': [{'name': 'weather', 'arguments': {'city': 'Rome', 'days': 2}}]}
    data = write('tool.jsonl', *[task(i, 'tool', check=check, tools=[{'type': 'function', 'function': {'name': 'weather'}}]) for i in range(4)])

    def answer(body, _):
        assert body['tools'][0]['function']['name'] == 'weather'
        number = int(question_of(body).split()[1].rstrip('?'))
        arguments = ['{"days": 2.0, "city": "Rome"}', '{"city": "Rome"}', '{"city": ', '{"city": "Rome", "days": 2}'][number]
        call = {'id': 'c', 'type': 'function', 'function': {'name': 'weather', 'arguments': arguments}}
        return completion(None if number else 'Let me look.', 'tool_calls', tool_calls=[call] * (2 if number == 3 else 1))
    with Server(answer) as server:
        expect(run('tasks', '--data', data, '--url', server.url, '-o', path('tool.out')), 0)
    got = {r['id'][-1]: r for r in records('tool.out')[1:]}
    assert [got[i]['right'] for i in '0123'] == [True, False, False, False], got
    assert 'no JSON' in got['2']['why'] and '2 calls' in got['3']['why']


@case
def a_server_that_limits_is_obeyed():
    seen = {}

    def answer(body, n):
        question = question_of(body)
        seen.setdefault(question, []).append(time.time())
        if len(seen[question]) == 1:
            return 429, {'retry-after': '1'}, b'{"error": {"message": "slow down"}}'
        return right_number(body, n)
    with Server(answer) as server:
        expect(run('tasks', '--data', numbers(6), '--url', server.url, '--concurrency', '3'), 0, '6      6  100.0 %')
    assert all(len(times) == 2 and times[1] - times[0] >= 0.95 for times in seen.values()), seen


@case
def connections_are_bounded():
    with Server(lambda body, n: (time.sleep(0.02), right_number(body, n))[1]) as server:
        expect(run('tasks', '--data', numbers(40), '--url', server.url, '--concurrency', '5'), 0)
        assert 2 <= server.most <= 5, server.most


@case
def a_server_that_dies_and_returns():
    data = numbers(60)
    with Server(lambda body, n: (time.sleep(0.02), right_number(body, n))[1] if n < 30 else 'drop') as first:
        process = subprocess.Popen([PROGRAM, 'eval', 'tasks', '--data', data, '--url', first.url, '-o', path('dies.out'), '--json'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while first.requests < 40:
            time.sleep(0.01)
    time.sleep(1)   # nobody listens on the port
    with Server(right_number, port=first.port):
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, (out, err)
    got = {row['name']: row['value'] for row in json.loads(out)['rows']}
    assert got['tasks/all/right'] == 60 and got['tasks/all/errors'] == 0, got
    assert len({r['id'] for r in records('dies.out')[1:]}) == 60 == len(records('dies.out')) - 1


@case
def a_case_that_is_never_answered_is_given_up():
    with Server(lambda body, n: (503, {'retry-after': '0'}, b'') if question_of(body) == 'Question 3?' else right_number(body, n)) as server:
        words = ('tasks', '--data', numbers(6), '--url', server.url, '-o', path('given.out'), '--tries', '3')
        expect(run(*words), 1, '1 without an answer', '1 cases have no answer')
        assert server.requests == 5 + 3, server.requests
        record = [r for r in records('given.out') if r.get('id') == 'sum-003'][0]
        assert record['right'] is None and 'given up after 3 tries' in record['error']['message'] and '503' in record['error']['message']
    with Server(right_number) as server:   # later only that one is asked again
        expect(run(*words[:4], server.url, *words[5:]), 0, '6      6  100.0 %')
        assert server.requests == 1


@case
def garbage_is_an_error_of_the_case():
    answers = {'0': (200, {}, b'<html>oops</html>'), '1': (200, {}, b'{"choices": []}'), '2': (200, {}, b'\xff\x00'),
               '3': completion('It is 3', usage=None)}
    with Server(lambda body, n: answers[question_of(body).split()[1].rstrip('?')]) as server:
        done = expect(run('tasks', '--data', numbers(4), '--url', server.url, '--tries', '1', '--concurrency', '4', '--json'), 1)
    assert rows(done)['tasks/all/errors'] == 3 and rows(done)['tasks/all/right'] == 1, rows(done)


@case
def a_request_that_is_refused_concerns_its_case_alone():
    with Server(lambda body, n: (400, {}, b'{"error": {"message": "too long"}}') if question_of(body) == 'Question 0?' else right_number(body, n)) as server:
        done = expect(run('tasks', '--data', numbers(5), '--url', server.url), 1, 'too long')
        assert server.requests == 5, server.requests


@case
def a_server_that_hangs_runs_into_the_timeout():
    with Server(lambda body, n: 'hang') as server:
        begin = time.time()
        expect(run('tasks', '--data', numbers(1), '--url', server.url, '--timeout', '1', '--tries', '2'), 1, 'no answer in time')
        assert time.time() - begin < 15


@case
def a_dead_server_ends_the_run():
    with Server(lambda body, n: 'drop') as server:
        done = expect(run('tasks', '--data', numbers(100), '--url', server.url, '--tries', '1', '--concurrency', '4'), 1, err='in a row without an answer')
        assert server.requests < 40, server.requests


@case
def a_wrong_address_is_said_at_once():
    free = socket.socket()
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
    free.close()
    data = numbers(1)
    refused(run('tasks', '--data', data, '--url', f'http://127.0.0.1:{port}'), 1, str(port), 'refused')
    refused(run('tasks', '--data', data, '--url', 'localhost:80'), 2, 'http://')
    refused(run('tasks', '--data', data, '--url', 'http://no-such-host.invalid'), 1, 'no-such-host.invalid')
    refused(run('tasks', '--data', data, '--url', 'http://127.0.0.1:99999'), 2, 'port')
    for models, parts in ((None, ['404', 'OpenAI-compatible']), (b'<html>', ['no list of models']), (401, ['401', '--key-file']),
                          (b'{"data": []}', ['no list of models'])):
        with Server(right_number, models=models) as server:
            refused(run('tasks', '--data', data, '--url', server.url), 1, *parts)


@case
def models_of_a_server():
    data = numbers(2)
    with Server(right_number, models=('alpha', 'beta')) as server:
        refused(run('tasks', '--data', data, '--url', server.url), 2, 'alpha, beta', '--served-model')
        refused(run('tasks', '--data', data, '--url', server.url, '--served-model', 'aplha'), 1, "'aplha'", 'did you mean alpha?')
        expect(run('tasks', '--data', data, '--url', server.url, '--served-model', 'beta'), 0)
        assert server.bodies[0][1]['model'] == 'beta'
    with Server(right_number, models=None) as server:
        expect(run('tasks', '--data', data, '--url', server.url, '--served-model', 'any'), 0)
    with Server(lambda body, n: (401, {}, b'{"error": {"message": "key expired"}}')) as server:
        expect(run('tasks', '--data', numbers(50), '--url', server.url, '--concurrency', '1'), 1, err='key expired')
        assert server.requests == 1


@case
def certificates_are_checked():
    with Server(right_number) as server:
        refused(run('tasks', '--data', numbers(1), '--url', server.url.replace('http:', 'https:')), 1, 'TLS')
    if not shutil.which('openssl'):
        raise LeftOut('no openssl program')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', path('key.pem'), '-out', path('cert.pem'), '-days', '2',
                    '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path('cert.pem'), path('key.pem'))
    with Server(right_number, context=context) as server:
        url = f'https://localhost:{server.port}'
        refused(run('tasks', '--data', numbers(1), '--url', url), 1, 'certificate')
        refused(run('tasks', '--data', numbers(1), '--url', url.replace('localhost', '127.0.0.1'), '--ca-file', path('cert.pem')), 1, 'certificate')
        refused(run('tasks', '--data', numbers(1), '--url', url, '--ca-file', path('nothing.pem')), 2, 'nothing.pem')
        expect(run('tasks', '--data', numbers(1), '--url', url, '--ca-file', path('cert.pem')), 0, '100.0 %')


class Serve:
    """The product's own server with a scripted model."""

    def __init__(self, model, port=0):
        self.process = subprocess.Popen([PROGRAM, 'serve', '-m', model, '--port', str(port), '--access-log', 'off'],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, 'XDG_STATE_HOME': FOLDER.name})
        line = b''
        while b'http://' not in line:
            line = self.process.stdout.readline()
            assert line, 'serve ended'
        self.url = line.decode().split()[-1]

    def kill(self):
        self.process.kill()
        self.process.wait()


@case
def the_server_of_this_program_answers_alike():
    data = write('alike.jsonl', *[task(i) for i in range(5, 25)])
    expect(run('tasks', '--data', data, '-m', hello(), '-o', path('alike-here.out')), 0)
    server = Serve(hello())
    expect(run('tasks', '--data', data, '--url', server.url, '-o', path('alike-there.out')), 0)
    server.kill()
    here, there = [{r['id']: (r['answer'], r['right'], r['prompt_tokens'], r['completion_tokens']) for r in records(name)[1:]}
                   for name in ('alike-here.out', 'alike-there.out')]
    assert here == there and len(here) == 20, (here, there)


@case
def the_server_of_this_program_is_killed_and_returns():
    model = hello(delay_ms=10, words=3)
    data = write('seven.jsonl', *[{**task(7), 'id': f'case-{i}'} for i in range(80)])
    server = Serve(model)
    process = subprocess.Popen([PROGRAM, 'eval', 'tasks', '--data', data, '--url', server.url, '-o', path('serve.out'), '--concurrency', '4'],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.time() + 60
    while time.time() < deadline and (not os.path.exists(path('serve.out')) or len(open(path('serve.out')).read().split('\n')) < 20):
        time.sleep(0.01)
    server.kill()
    time.sleep(0.7)
    server = Serve(model, server.url.rsplit(':', 1)[1])
    out, err = process.communicate(timeout=100)
    server.kill()
    assert process.returncode == 0 and b'80     80  100.0 %' in out, (out, err)
    assert len({r['id'] for r in records('serve.out')[1:]}) == 80 == len(records('serve.out')) - 1


# ---- the other suites -----------------------------------------------------------------------------------------------

@case
def gsm8k():
    data = write('gsm8k.jsonl', {'question': 'How many?', 'answer': 'Two and two.\n#### 1,204'}, {'id': 7, 'question': 'How much?', 'answer': '3.5'})
    with Server(lambda body, n: completion('So \\boxed{1204} of 9.' if 'many' in question_of(body) else 'It costs $3.50')) as server:
        expect(run('gsm8k', '--data', data, '--url', server.url), 0, '2      2  100.0 %')
        assert server.bodies[0][1]['max_tokens'] == 1024 and 'boxed' in question_of(server.bodies[0][1])


@case
def gpqa_is_shuffled_by_the_seed():
    data = write('gpqa.jsonl', *[{'Record ID': f'rec{i}', 'Question': f'What is {i}?', 'Correct Answer': 'right one', 'Incorrect Answer 1': 'wrong a',
                                  'Incorrect Answer 2': 'wrong b', 'Incorrect Answer 3': 'wrong c', 'High-level domain': 'Physics'} for i in range(20)])

    def answer(body, _):
        line = [l for l in question_of(body).split('\n') if l.endswith('right one')][0]
        return completion(f'Hm.\n**Answer: {line[0]}**')
    places = []
    with Server(answer) as server:
        for seed in ('1', '1', '2'):
            server.bodies.clear()
            expect(run('gpqa', '--data', data, '--url', server.url, '--seed', seed), 0, 'physics     20     20  100.0 %')
            places.append(sorted(question_of(body) for _, body in server.bodies))
    assert places[0] == places[1] != places[2]
    assert len({text[:text.index('right one')][-3] for text in places[0]}) == 4


@case
def hle_and_aime():
    data = write('hle.jsonl', {'id': 'a', 'question': 'Name it.', 'answer': 'The Eiffel Tower', 'answer_type': 'exactMatch', 'category': 'Other'},
                 {'id': 'b', 'question': 'Which? A. x B. y', 'answer': 'B', 'answer_type': 'multipleChoice', 'category': 'Math', 'image': ''})
    with Server(lambda body, n: completion('Answer: the eiffel tower.' if 'Name' in question_of(body) else 'Answer: B')) as server:
        expect(run('hle', '--data', data, '--url', server.url), 0, 'all        2      2', 'lower bounds')
    data = write('aime.jsonl', {'ID': '2024-I-1', 'Problem': 'Find x.', 'Answer': 25})
    with Server(lambda body, n: completion('Thus \\boxed{025}.')) as server:
        expect(run('aime', '--data', data, '--url', server.url), 0, '1      1  100.0 %')


def python_case(name, body, test):
    return ({'task_id': name, 'prompt': f'import math\n\n\ndef {name}(x):\n    """ Do it. """\n', 'test': f'def check(candidate):\n    {test}\n',
             'entry_point': name}, body)


def humaneval(*cases, flags=()):
    data = write('humaneval.jsonl', *[problem for problem, _ in cases])
    answers = {problem['entry_point']: body for problem, body in cases}
    with Server(lambda body, n: completion(next(a for name, a in answers.items() if f'def {name}(' in question_of(body)))) as server:
        if os.path.exists(path('humaneval.out')):
            os.remove(path('humaneval.out'))
        done = run('humaneval', '--data', data, '--url', server.url, '-o', path('humaneval.out'), *flags)
        if 'permits no seccomp' in done.err:
            raise LeftOut('this system permits no seccomp filter')
        expect(done, 0, err='sandbox: seccomp filter')
    return {r['id']: (r['right'], r['why']) for r in records('humaneval.out')[1:]}


@case
def humaneval_reads_answers():
    double = 'assert candidate(2) == 4'
    got = humaneval(python_case('fenced', 'Sure:\n```python\ndef fenced(x):\n    return math.floor(2 * x)\n```\nDone.', double),
                    python_case('whole', 'def whole(x):\n    return 2 * x', double),
                    python_case('body', '    return 2 * x\n', double),
                    python_case('bare', 'return 2 * x', double),
                    python_case('wrong', '    return x\n', double),
                    python_case('broken', 'return ((', double),
                    python_case('prose', 'I do not know.', double),
                    python_case('leaves', 'import sys\nsys.exit(0)', double),
                    python_case('quits', 'import os\nos._exit(0)', double))
    right = {name for name, (verdict, _) in got.items() if verdict}
    assert right == {'fenced', 'whole', 'body', 'bare'}, got
    assert got['wrong'][1] == 'AssertionError' and 'SyntaxError' in got['broken'][1], got
    assert 'before its tests' in got['quits'][1], got


@case
def humaneval_holds_what_it_runs():
    victim = write('victim', 'untouched')
    attempts = {
        'sock': 'import socket\nsocket.create_connection(("127.0.0.1", 1))',
        'unix': 'import socket\nsocket.socket(socket.AF_UNIX)',
        'fork': 'import os\nwhile True: os.fork()',
        'spawn': 'import subprocess\nsubprocess.run(["/bin/sh", "-c", "echo"])',
        'thread': 'import threading\nfor i in range(9): threading.Thread(target=print).start()',
        'write': f'open({victim!r}, "w").write("gone")',
        'append': f'open({victim!r}, "r+").write("gone")',
        'remove': f'import os\nos.remove({victim!r})',
        'rename': f'import os\nos.rename({victim!r}, {victim + "2"!r})',
        'mkdir': f'import os\nos.mkdir({path("made")!r})',
        'temp': 'import tempfile\ntempfile.TemporaryFile()',
        'killer': 'import os\nos.kill(os.getppid(), 9)',
        'killall': 'import os\nos.kill(-1, 9)',
        'raiselimit': 'import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))',
        'mount': 'import ctypes\nif ctypes.CDLL(None).mount(b"x", b"/", b"tmpfs", 0, 0): raise OSError("refused")',
    }
    got = humaneval(*[python_case(name, body + '\nreturn 4', 'assert candidate(2) == 4') for name, body in attempts.items()])
    assert [name for name, (verdict, _) in got.items() if verdict] == [], got
    for name, (_, why) in got.items():
        assert any(word in why for word in ('PermissionError', 'BlockingIOError', 'RuntimeError', 'OSError', 'FileNotFoundError', 'ValueError')), (name, why)
    assert open(victim).read() == 'untouched\n' and not os.path.exists(path('made'))


@case
def humaneval_limits_time_memory_and_output():
    begin = time.time()
    got = humaneval(python_case('spin', 'while True: pass', 'candidate(1)'),
                    python_case('memory', 'return len(bytearray(1 << 33))', 'candidate(1)'),
                    python_case('flood', 'import sys\nwhile True: sys.stderr.write("x" * 100000)', 'candidate(1)'),
                    python_case('sleepy', 'import time\ntime.sleep(1000)', 'candidate(1)'),
                    python_case('deaf', 'import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass', 'candidate(1)'), flags=('--python-seconds', '1'))
    assert not any(verdict for verdict, _ in got.values()), got
    assert 'MemoryError' in got['memory'][1] and all('took more than' in got[name][1] for name in ('spin', 'sleepy', 'deaf')), got
    assert time.time() - begin < 60


def forbid_seccomp():
    """The system of somebody whose kernel has no seccomp: a filter that refuses prctl(PR_SET_SECCOMP)."""
    prctl, set_seccomp, set_no_new_privs, allow = 157, 22, 38, 0x7FFF0000
    code = [(0x20, 0, 0, 0), (0x15, 0, 3, prctl), (0x20, 0, 0, 16), (0x15, 0, 1, set_seccomp), (0x06, 0, 0, 0x00050000 | 22), (0x06, 0, 0, allow)]
    data = b''.join(struct.pack('HBBI', *line) for line in code)
    libc, buffer = ctypes.CDLL(None), ctypes.create_string_buffer(data)
    program = struct.pack('HxxxxxxQ', len(code), ctypes.addressof(buffer))
    libc.prctl(set_no_new_privs, 1, 0, 0, 0)
    libc.prctl(set_seccomp, 2, ctypes.c_char_p(program), 0, 0)


@case
def humaneval_refuses_to_run_unprotected():
    problem, body = python_case('twice', 'return 2 * x', 'assert candidate(2) == 4')
    words = [PROGRAM, 'eval', 'humaneval', '--data', write('humaneval.jsonl', problem)]
    with Server(lambda *_: completion(body)) as server:
        for flags, code, text in (([], 1, 'no seccomp filter'), (['--unsafe-no-sandbox'], 0, 'NO filter')):
            done = subprocess.run([*words, '--url', server.url, *flags], capture_output=True, timeout=60, preexec_fn=forbid_seccomp)
            assert done.returncode == code and text in done.stderr.decode(), (done.returncode, done.stderr)
            assert (b'100.0 %' in done.stdout) == (code == 0)


@case
def humaneval_interrupted_while_a_program_runs():
    problem, body = python_case('spin', 'while True: pass', 'pass\n    candidate(1)')
    with Server(lambda *_: completion(body)) as server:
        process = subprocess.Popen([PROGRAM, 'eval', 'humaneval', '--data', write('humaneval.jsonl', problem), '--url', server.url,
                                    '--python-seconds', '60', '-o', path('spin.out')], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while server.requests < 1:
            time.sleep(0.01)
        time.sleep(0.5)
        begin = time.time()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130 and time.time() - begin < 5, process.returncode
    assert len(records('spin.out')) == 1


@case
def humaneval_needs_python():
    data = write('humaneval.jsonl', python_case('f', '', 'pass')[0])
    refused(run('humaneval', '--data', data, '-m', hello(), '--python', path('no-python')), 1, 'no-python', 'apt install python3')
    refused(run('humaneval', '--data', data, '-m', hello(), '--python', '/bin/true'), 1, '/bin/true')


@case
def humaneval_solutions_of_the_samples():
    file = os.path.join(ROOT, '../shared/data/humaneval/humaneval_40.jsonl')
    if not os.path.exists(file):
        raise LeftOut('the HumanEval samples are not beside this tree')
    with open(file) as lines:
        problems = [json.loads(line) for line in lines]
    def answer(body, _):
        problem = next(p for p in problems if p['prompt'] in question_of(body))
        return completion(f'```python\n{problem["prompt"]}{problem["canonical_solution"]}```')
    with Server(answer) as server:
        expect(run('humaneval', '--data', file, '--url', server.url, '-o', path('samples.out')), 0)
    wrong = [(r['id'], r['why']) for r in records('samples.out')[1:] if not r['right']]
    assert not wrong, wrong


main()
