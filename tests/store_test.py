#!/usr/bin/env python3
"""tests/store_test.py PROGRAM [CASE...]: the KV store under a server: restarts, kills, two servers, tenants, broken folders.
Last line `N passed, N failed`."""
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal

from cases import ROOT, case, main
from serve_harness import Server, chat_body, eventually, path, run

MODEL = os.path.join(ROOT, 'models/tiny-v41')
WORDS = 'river stone lamp green seven paper cloud fox train apple quiet window'.split()


def story(seed, words):
    draw = random.Random(seed)
    return ' '.join(draw.choice(WORDS) for _ in range(words))


def fresh(name):
    shutil.rmtree(path(name), ignore_errors=True)
    return path(name)


def serve(folder, *flags):
    return Server('--store', folder, *flags, model=MODEL)


def ask(server, messages, headers=None, **fields):
    body = {**chat_body(seed=5, temperature=0.7, max_tokens=24, cache_debug=True, **fields), 'messages': messages}
    answer = server.json('POST', '/v1/chat/completions', body, headers)
    return answer['choices'][0]['message']['content'], answer['usage']


def stored(server, headers=None):
    """Everything of past answers has reached the disk."""
    seen = []  # the writer may pause: as often the same as half a second holds

    def settled():
        text = server.ask('GET', '/metrics', headers=headers)[2].decode()
        now = float(re.search(r'^deepinfer_store_written_records_total (\S+)', text, re.M).group(1))
        seen.append(now)
        return now > 0 and seen[-10:] == [now] * 10
    eventually(settled, 'nothing was stored')


def chat(server, texts, history=()):
    """A conversation; its answers, the messages, the usage of each turn."""
    messages, answers, usages = list(history), [], []
    for text in texts:
        messages.append({'role': 'user', 'content': text})
        answer, usage = ask(server, messages)
        messages.append({'role': 'assistant', 'content': answer})
        answers.append(answer)
        usages.append(usage)
    return answers, messages, usages


@case
def a_long_chat_outlives_a_kill():
    folder = fresh('kill')
    texts = [story(1, 500), story(2, 30), story(3, 20)]
    with Server('--store', 'off', model=MODEL) as cold:
        expected = chat(cold, texts)[0]
    with serve(folder) as server:
        answers, messages, usages = chat(server, texts[:2])
        stored(server)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    assert answers == expected[:2]
    before = usages[-1]['prompt_tokens']
    with serve(folder) as server:
        answers, _, usages = chat(server, texts[2:], messages)
        usage = usages[0]
        told = usage['cache_debug']
        assert answers == expected[2:], (answers, expected)
        assert usage['prompt_cache_hit_tokens'] >= before // 64 * 64 - 64 and told['loaded_tokens'] == usage['prompt_cache_hit_tokens'], usage
        computed = usage['prompt_tokens'] - told['cached_tokens'] + told['replayed_tokens']
        assert computed <= 318 + usage['prompt_tokens'] - before, (computed, usage, before)
        assert server.metric('deepinfer_store_loads_total') == 1 and server.metric('deepinfer_store_corrupt_total') == 0


@case
def kills_in_the_middle_of_answers():
    folder = fresh('kills')
    prompt = [{'role': 'user', 'content': story(4, 450)}]
    with Server('--store', 'off', model=MODEL) as cold:
        expected = ask(cold, prompt)[0]
    draw = random.Random(6)
    for _ in range(4):
        with serve(folder) as server:
            with contextlib.suppress(Exception):
                server.ask('POST', '/v1/chat/completions', {**chat_body(max_tokens=40), 'messages': prompt}, timeout=draw.uniform(0.05, 0.8))
            server.process.kill()
    with serve(folder) as server:
        assert ask(server, prompt)[0] == expected
        assert server.metric('deepinfer_store_corrupt_total') == 0


@case
def two_servers_share_a_folder():
    folder = fresh('shared')
    prompt = [{'role': 'user', 'content': story(7, 450)}]
    with serve(folder) as one, serve(folder) as two:
        answer, usage = ask(one, prompt)
        assert usage['prompt_cache_hit_tokens'] == 0
        stored(one)
        # What the other wrote is seen at the next look at the folder, which a second question does not wait for.
        eventually(lambda: two.metric('deepinfer_store_bytes') >= one.metric('deepinfer_store_bytes'), 'the other server finds nothing', 30)
        again, usage = ask(two, prompt)
        assert again == answer and usage['cache_debug']['loaded_tokens'] > 0, usage
        both = [{'role': 'user', 'content': story(8, 450)}]
        assert ask(two, both)[0] == ask(one, both)[0]
        assert one.metric('deepinfer_store_corrupt_total') + two.metric('deepinfer_store_corrupt_total') == 0


@case
def keys_share_nothing():
    def keys(name, **secrets):
        with open(path(name), 'w') as file:
            file.writelines(f'{who} {hashlib.sha256(secret.encode()).hexdigest()}\n' for who, secret in secrets.items())
        return path(name)

    folder = fresh('tenants')
    prompt = [{'role': 'user', 'content': story(9, 450)}]
    with serve(folder, '--keys', keys('one.txt', alice='a', bob='b')) as server:
        answer, _ = ask(server, prompt, {'authorization': 'Bearer a'})
        stored(server, {'authorization': 'Bearer a'})
    # The same name with another key is somebody else, too.
    with serve(folder, '--keys', keys('two.txt', alice='x', bob='b', carol='a')) as server:
        for key in ('x', 'b', 'a'):
            again, usage = ask(server, prompt, {'authorization': 'Bearer ' + key})
            assert again == answer and usage['prompt_cache_hit_tokens'] == 0 and usage['cache_debug']['reason'] == 'new', (key, usage)
    with serve(folder, '--keys', keys('one.txt', alice='a', bob='b')) as server:
        again, usage = ask(server, prompt, {'authorization': 'Bearer a'})
        assert again == answer and usage['cache_debug']['loaded_tokens'] > 0, usage


@case
def broken_folders_only_cost_hits():
    prompt = [{'role': 'user', 'content': story(10, 450)}]
    folder = fresh('broken')
    with serve(folder) as server:
        answer, _ = ask(server, prompt)
        stored(server)
        # Taken away under the server: a miss later, and no error.
        shutil.rmtree(folder)
        assert ask(server, prompt)[0] == answer
    # A file where the folder should be cannot be read or written by anybody, root included.
    blocked = path('a-file')
    with open(blocked, 'w') as file:
        file.write('no folder')
    with serve(os.path.join(blocked, 'kv')) as server:
        again, usage = ask(server, prompt)
        assert again == answer and usage['prompt_cache_hit_tokens'] == 0
        eventually(lambda: server.metric('deepinfer_store_not_stored_total') > 0, 'the refused records are not counted')
        assert server.metric('deepinfer_store_faults_total') > 0 and server.json('GET', '/health/ready')
    with open(blocked) as file:
        assert file.read() == 'no folder'
    # Where nothing is free there is a limit all the same.
    with serve('/proc/kv') as server:
        assert ask(server, prompt)[0] == answer


@case
def looking_into_the_folder():
    folder = fresh('looked')
    with open(path('look.txt'), 'w') as file:
        file.writelines(f'{name} {hashlib.sha256(name.encode()).hexdigest()}\n' for name in ('alice', 'bob'))
    prompt = [{'role': 'user', 'content': story(12, 450)}]
    with serve(folder, '--keys', path('look.txt')) as server:
        for key in ('alice', 'bob'):
            ask(server, prompt, {'authorization': 'Bearer ' + key})
        stored(server, {'authorization': 'Bearer bob'})
        done = run('cache', 'drop', '--store', folder)
        assert done.returncode == 1 and b'being written by a server' in done.stderr, done
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=30)
    rows = json.loads(run('cache', 'ls', '--store', folder, '--json').stdout)
    assert {row['state'] for row in rows} == {'sealed'} and sum(row['pages'] for row in rows) > 10, rows
    assert run('cache', 'ls', '--store', folder).stdout.count(b'.seg') == len(rows)
    tenants = json.loads(run('cache', 'stat', '--store', folder, '--json').stdout)['tenants']
    assert len(tenants) == 2, tenants
    for words in (('cache', 'verify'), ('verify', 'cache')):
        done = run(*words, '--store', folder)
        assert done.returncode == 0 and b' 0 damaged' in done.stdout, done
    assert run('cache', 'drop', '--store', folder, '--tenant', 'carol', '--keys', path('look.txt')).returncode == 1
    assert run('cache', 'drop', '--store', folder, '--tenant', 'alice', '--keys', path('look.txt')).returncode == 0
    assert len(json.loads(run('cache', 'stat', '--store', folder, '--json').stdout)['tenants']) == 1
    with serve(folder, '--keys', path('look.txt')) as server:
        hits = {key: ask(server, prompt, {'authorization': 'Bearer ' + key})[1]['cache_debug']['loaded_tokens'] for key in ('alice', 'bob')}
        assert hits['alice'] == 0 and hits['bob'] > 0, hits
    rows = json.loads(run('cache', 'ls', '--store', folder, '--json').stdout)
    segment = os.path.join(folder, next(row['segment'] for row in rows if row['pages'] > 0))
    with open(segment, 'r+b') as file:
        file.seek(4096 + 700)
        file.write(b'damage')
    done = run('cache', 'verify', '--store', folder)
    assert done.returncode == 1 and b' 1 damaged' in done.stdout, done
    assert run('cache', 'drop', '--store', folder).returncode == 0
    assert json.loads(run('cache', 'ls', '--store', folder, '--json').stdout) == []
    assert run('cache', 'ls', '--store', path('nowhere')).returncode == 1 and run('cache', 'look').returncode == 2


@case
def an_encrypted_store_is_read_with_its_key_only():
    folder = fresh('locked')
    prompt = [{'role': 'user', 'content': story(17, 450)}]
    keys = [path('one.key'), path('two.key')]
    for name, digit in zip(keys, '12'):
        with open(name, 'w') as file:
            file.write(digit * 64 + '\n')
    loaded = []
    for key in (keys[0], keys[0], keys[1], None):
        with serve(folder, *(('--store-key-file', key) if key else ())) as server:
            _, usage = ask(server, prompt)
            loaded.append(usage['cache_debug']['loaded_tokens'])
            if len(loaded) > 2:
                assert usage['cache_debug']['reason'] == 'other model or layout', usage
            stored(server)
            server.process.send_signal(signal.SIGTERM)
            server.process.communicate(timeout=30)
    assert loaded[0] == 0 and loaded[1] > 0 and loaded[2:] == [0, 0], loaded
    locked = {key: json.loads(run('cache', 'verify', '--store', folder, '--json', *(('--store-key-file', key) if key else ())).stdout) for key in (keys[0], None)}
    assert locked[None]['locked_segments'] > locked[keys[0]]['locked_segments'] > 0 and locked[None]['damaged'] == 0, locked
    assert b'a key that is not at hand' in run('cache', 'verify', '--store', folder).stdout
    with open(keys[0], 'w') as file:
        file.write('too short')
    done = run('serve', '-m', MODEL, '--port', '0', '--store', folder, '--store-key-file', keys[0])
    assert done.returncode == 2 and b'is no key of the KV store' in done.stderr and done.stderr.count(b'\n') == 1, done


@case
def how_long_it_is_kept():
    folder = fresh('classes')
    tools = [{'type': 'function', 'function': {'name': 'look', 'parameters': {'type': 'object'}}}]
    with serve(folder) as server:
        ask(server, [{'role': 'user', 'content': story(13, 200)}])
        ask(server, [{'role': 'user', 'content': story(14, 200)}], tools=tools)
        ask(server, [{'role': 'user', 'content': story(15, 200)}], {'x-cache-class': 'pinned'})
        server.error(400, 'POST', '/v1/chat/completions', chat_body(), {'x-cache-class': 'eternal'}, text='x-cache-class is one of')
        marked = [{'role': 'user', 'content': [{'type': 'text', 'text': story(16, 200), 'cache_control': {'type': 'ephemeral'}}]}]
        server.json('POST', '/v1/messages', {'model': chat_body()['model'], 'max_tokens': 8, 'messages': marked, 'tools': [{'name': 'look', 'input_schema': {'type': 'object'}}]})
        stored(server)
    rows = json.loads(run('cache', 'ls', '--store', folder, '--json').stdout)
    pages = {row['segment'].split('/')[1]: row['pages'] for row in rows}
    assert pages['chat'] > 0 and pages['agent'] > 0 and pages['pinned'] > 0, pages
    assert pages['chat'] > pages['agent'] * 3 // 2, (pages, 'what is marked is kept as a chat is, with tools or without')
    days = {row['segment'].split('/')[1]: (row['expires'] - row['created']) / 86400 for row in rows}
    assert 7 <= days['chat'] <= 8 and 3 <= days['agent'] <= 3.5 and days['pinned'] < 0, days


@case
def where_it_is_and_how_large():
    cache = fresh('xdg')
    with Server('--store-size', '0.2', model=MODEL, env={'XDG_CACHE_HOME': cache}, store=None) as server:
        ask(server, [{'role': 'user', 'content': story(11, 200)}])
        stored(server)
        server.process.send_signal(signal.SIGTERM)
        _, noted = server.process.communicate(timeout=30)
    assert f'KV store in {cache}/deepinfer/kv, at most 0.2 GB'.encode() in noted, noted
    segments = [os.path.join(at, name) for at, _, names in os.walk(cache) for name in names]
    assert segments and all(name.endswith('.seg') and os.stat(name).st_mode & 0o077 == 0 for name in segments), segments
    # Too small for a page: an error when it was asked for.
    done = run('serve', '-m', MODEL, '--port', '0', '--store', fresh('tiny'), '--store-size', '0.00001')
    assert done.returncode == 2 and done.stderr.count(b'\n') == 1 and b'KV store' in done.stderr, done
    with Server('--store', 'off', model=MODEL) as server:
        assert b'deepinfer_store_' not in server.ask('GET', '/metrics')[2]


main()
