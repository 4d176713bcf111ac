#!/usr/bin/env python3
"""tests/serve_test.py PROGRAM [CASE...]: the server as its users and its enemies meet it. Last line `N passed, N failed`.
Needs the packages of tools/serve_packages.txt for the cases with the openai library; uses scripted models."""
import base64
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

from cases import ROOT, case, main
from serve_harness import (Server, chat_body, events, eventually, has, hello, path, picture, post, run, script, slow,
                           stream_in_background)


# ---- answers ------------------------------------------------------------------------------------------------------

@case
def answers_whole_and_streamed():
    with Server() as server:
        whole = server.chat()
        choice = whole['choices'][0]
        assert choice['message']['content'] == 'Hello from the script.' and choice['finish_reason'] == 'stop', whole
        assert whole['system_fingerprint'].startswith('fp_')
        usage = whole['usage']
        assert usage['total_tokens'] == usage['prompt_tokens'] + usage['completion_tokens'] and usage['completion_tokens'] == 5
        status, headers, data = server.ask('POST', '/v1/chat/completions', chat_body(stream=True))
        assert status == 200 and headers['content-type'].startswith('text/event-stream'), headers
        assert data.endswith(b'data: [DONE]\n\n')
        chunks = events(data)
        assert ''.join(c['choices'][0]['delta'].get('content') or '' for c in chunks) == 'Hello from the script.'
        assert [c['choices'][0]['finish_reason'] for c in chunks] == [None] * (len(chunks) - 1) + ['stop']
        assert 'usage' not in chunks[0] and chunks[-1]['usage'] == usage
        apart = events(server.ask('POST', '/v1/chat/completions', chat_body(stream=True, stream_options={'include_usage': True}))[2])
        assert apart[-1]['choices'] == [] and apart[-1]['usage'] == usage and all(c['usage'] is None for c in apart[:-1])
        assert len({c['id'] for c in apart}) == 1


@case
def several_answers_and_seeds():
    model = script('hash.jsonl', {'hash': {'tokens': 12, 'seed': 3}})
    with Server(model=model) as server:
        one = server.chat(n=3, seed=7)
        two = server.chat(n=3, seed=7)
        texts = [c['message']['content'] for c in one['choices']]
        assert texts == [c['message']['content'] for c in two['choices']] and len(set(texts)) == 3, texts
        assert [c['index'] for c in one['choices']] == [0, 1, 2]
        assert one['usage']['completion_tokens'] == 36
        chunks = events(server.ask('POST', '/v1/chat/completions',
                                   chat_body(n=3, seed=7, stream=True, stream_options={'include_usage': True}))[2])
        for index, text in enumerate(texts):
            mine = [c['choices'][0] for c in chunks if c['choices'] and c['choices'][0]['index'] == index]
            assert ''.join(c['delta'].get('content') or '' for c in mine) == text
            assert sum(c['finish_reason'] is not None for c in mine) == 1
        assert chunks[-1]['usage'] == one['usage']


@case
def official_profile_is_stricter():
    with Server('--profile', 'official') as server:
        server.error(400, 'POST', '/v1/chat/completions', chat_body(n=2), text='Invalid n value')
        body = chat_body()
        body['messages'][0]['role'] = 'developer'
        server.error(400, 'POST', '/v1/chat/completions', body, text='developer')
        chunks = events(server.ask('POST', '/v1/chat/completions', chat_body(stream=True, stream_options={'include_usage': True}))[2])
        assert chunks[-1]['usage']['total_tokens'] > 0 and chunks[-1]['choices'][0]['finish_reason'] == 'stop'


@case
def completions():
    with Server() as server:
        one = server.json('POST', '/v1/completions', {'model': 'test', 'prompt': 'Once', 'echo': True})
        assert one['choices'][0]['text'] == 'OnceHello from the script.' and one['object'] == 'text_completion'
        ids = server.json('POST', '/tokenize', {'prompt': 'Once'})['tokens']
        many = server.json('POST', '/v1/completions', {'model': 'test', 'prompt': [ids, ids], 'n': 2, 'logprobs': 0, 'max_tokens': 2})
        assert [c['index'] for c in many['choices']] == [0, 1, 2, 3] and many['usage']['completion_tokens'] == 8
        assert many['choices'][0]['finish_reason'] == 'length' and len(many['choices'][0]['logprobs']['tokens']) == 2
        data = server.ask('POST', '/v1/completions', {'model': 'test', 'prompt': 'x', 'suffix': 'y', 'stream': True})[2]
        assert ''.join(e['choices'][0]['text'] for e in events(data)) == 'Hello from the script.' and data.endswith(b'[DONE]\n\n')
        for body, text in ((({'prompt': 'x'}), 'model'), ({'model': 'test'}, 'prompt'), ({'model': 'test', 'prompt': []}, 'prompt'),
                           ({'model': 'test', 'prompt': 'x', 'max_tokens': 0}, 'max_tokens'), ({'model': 'test', 'prompt': 'x', 'n': 0}, 'n value'),
                           ({'model': 'test', 'prompt': 'x', 'max_tokens': 10**7}, 'context'), ({'model': 'test', 'prompt': [10**8]}, 'vocabulary'),
                           ({'model': 'test', 'prompt': 'x', 'guided_regex': 'a'}, 'response_format')):
            server.error(400, 'POST', '/v1/completions', body, text=text)
        server.error(404, 'POST', '/v1/completions', {'model': 'none', 'prompt': 'x'}, text='The supported API model names')


@case
def completions_keep_what_the_model_writes():
    text = '\n\na</think>b\n'
    with Server(model=script('raw.jsonl', {'text': text})) as server:
        for more in ({}, {'suffix': 'y'}):
            body = {'model': 'test', 'prompt': 'x', 'max_tokens': 40, **more}
            assert server.json('POST', '/v1/completions', body)['choices'][0]['text'] == text
            data = server.ask('POST', '/v1/completions', {**body, 'stream': True})[2]
            assert ''.join(e['choices'][0]['text'] for e in events(data)) == text
        stopped = server.json('POST', '/beta/completions', {'model': 'test', 'prompt': 'x', 'stop': 'k>b'})['choices'][0]
        assert stopped['text'] == '\n\na</thin' and stopped['finish_reason'] == 'stop', stopped
    with Server('--profile', 'official') as server:
        server.error(400, 'POST', '/beta/completions', {'model': 'test', 'prompt': 'x', 'max_tokens': 4097}, text='[1, 4096]')


@case
def a_prompt_beyond_the_context_says_so_on_every_wire():
    words, message = 'word ' * 300, [{'role': 'user', 'content': 'word ' * 300}]
    wires = (('/v1/chat/completions', {'messages': message}), ('/v1/completions', {'prompt': words}), ('/v1/messages', {'messages': message}),
             ('/v1/responses', {'input': words}))
    for profile in ('open', 'official'):
        with Server('--context', '256', '--profile', profile) as server:
            for target, body in wires:
                answer = server.json('POST', target, {'model': 'test', **body}, status=400)
                text = answer['error']['message']
                assert re.fullmatch(r"This model's maximum context length is 256 tokens\. However, you requested \d+ tokens \(\d+ in the messages, "
                                    r'\d+ in the completion\)\. Please reduce the length of the messages or completion\.', text), text
            # A prompt that just fills it leaves no room for an answer's first token.
            prompt = server.json('POST', '/tokenize', {'prompt': words})['tokens'][:256]
            server.error(400, 'POST', '/v1/completions', {'model': 'test', 'prompt': prompt, 'max_tokens': 1}, text='requested 257 tokens (256 in')


@case
def whole_answers_begin_before_they_are_there():
    with Server('--keep-alive', '0.2', model=script('silent4.jsonl', {'match': 'fail', 'text': 'word ' * 400, 'delay_ms': 20},
                                                    {'text': 'word ' * 400, 'delay_ms': 20})) as server:
        out = server.raw(post('/v1/chat/completions', chat_body(), 'connection: close\r\n'), timeout=30)
        head, body = out.split(b'\r\n\r\n', 1)
        assert head.startswith(b'HTTP/1.1 200') and b'application/json' in head and body.startswith(b'1\r\n\n\r\n'), out[:400]
        assert len(server.chat()['choices'][0]['message']['content']) == 2000
        # An error that comes later is a body, too.
        late = server.ask('POST', '/v1/chat/completions', chat_body(), {'x-request-timeout': '4'})
        assert late[0] == 200 and late[2].startswith(b'\n') and json.loads(late[2])['error']['type'] == 'timeout_error', late
        quick = server.ask('POST', '/v1/chat/completions', chat_body(max_tokens=2))
        assert quick[2].startswith(b'{'), quick


@case
def official_answers_that_do_not_begin_are_ended():
    for profile in ('official', 'open'):
        with Server('--batch', '1', '--start-timeout', '0.5', '--profile', profile, model=slow(20)) as server:
            first = stream_in_background(server)
            first.begun.wait(10)
            status, headers, data = server.ask('POST', '/v1/chat/completions', chat_body(max_tokens=1))
            assert (status == 504) == (profile == 'official'), (status, data)
            assert status == 200 or (headers['x-should-retry'] == 'true' and b'did not begin' in data)


@case
def requests_are_read_as_the_settings_say():
    search = [{'type': 'web_search_20250305', 'name': 'web_search'}]
    turn = {'model': 'test', 'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': 2}
    tool = {'type': 'function', 'function': {'name': 'f'}}
    with Server('--web-search', 'refuse', '--missing-reasoning', 'refuse', '--max-tokens-plain', '10') as server:
        assert 'server tools' in server.json('POST', '/v1/messages', {**turn, 'tools': search}, status=400)['error']['message']
        server.error(400, 'POST', '/v1/responses', {'model': 'test', 'input': 'hi', 'tools': [{'type': 'web_search'}]}, text='Server tools')
        server.error(400, 'POST', '/v1/chat/completions', chat_body(max_tokens=11), text='[1, 10]')
        calls = [{'id': 'c', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}]
        history = [*turn['messages'], {'role': 'assistant', 'tool_calls': calls}, {'role': 'tool', 'tool_call_id': 'c', 'content': 'x'}]
        server.error(400, 'POST', '/v1/chat/completions', {'model': 'test', 'messages': history, 'tools': [tool]}, text='must be passed back')
    with Server('--web-search', 'drop', '--profile', 'official') as server:
        assert server.json('POST', '/v1/messages', {**turn, 'tools': search})['content']


@case
def tools_do_not_wait_for_pictures():
    # Pictures of distinct bytes: one of 4096 x 4096 decodes for a tenth of a second and more.
    png = picture(width=4096, height=4096)
    parts = [{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + base64.b64encode(png + bytes([i])).decode()}} for i in range(40)]
    pictures = {'model': 'test', 'messages': [{'role': 'user', 'content': parts}], 'max_tokens': 1}
    tools = [{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', 'properties': {}}}}]
    with Server('--context', '2048', model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        busy = [threading.Thread(target=lambda: server.ask('POST', '/v1/chat/completions', pictures, timeout=120)) for _ in range(3)]
        for thread in busy:
            thread.start()
        eventually(lambda: server.metric('deepinfer_http_body_bytes_at_work') > 0)
        server.chat('What is 1 + 1?', tools=tools, max_tokens=4)
        assert server.metric('deepinfer_http_body_bytes_at_work') > 0, 'it was answered behind the pictures'
        for thread in busy:
            thread.join()


@case
def tokens_models_version():
    with Server('--served-model-name', 'test,other/name') as server:
        text = 'Grüße <｜User｜> 你好'
        ids = server.json('POST', '/tokenize', {'prompt': text, 'add_special_tokens': False})
        assert ids['count'] == len(ids['tokens'])
        assert server.json('POST', '/detokenize', {'tokens': ids['tokens']})['prompt'] == text
        special = server.json('POST', '/tokenize', {'prompt': '<｜User｜>', 'add_special_tokens': False, 'parse_special': True})
        assert special['count'] == 1
        server.error(400, 'POST', '/detokenize', {'tokens': [10**8]}, text='vocabulary')
        server.error(400, 'POST', '/tokenize', {}, text='prompt')
        assert [m['id'] for m in server.json('GET', '/v1/models')['data']] == ['test', 'other/name']
        assert server.json('GET', '/v1/models/other/name')['id'] == 'other/name'
        assert server.json('GET', '/v1/models/other%2Fname')['id'] == 'other/name'
        server.error(404, 'GET', '/v1/models/none', text='none')
        assert server.json('GET', '/version')['version']
        page = server.ask('GET', '/')
        assert page[0] == 200 and b'<!doctype html>' in page[2].lower()[:100]
        assert server.ask('GET', '/', headers={'if-none-match': page[1]['etag']})[0] == 304
        for name in ('test', 'other/name'):
            assert server.chat(model=name)['model'] == name


@case
def unknown_routes_methods_media_types():
    with Server() as server:
        server.error(404, 'GET', '/nowhere', text='/nowhere')
        server.error(404, 'POST', '/v1/chat', {}, text='/v1/chat')
        status, headers, _ = server.ask('GET', '/v1/chat/completions')
        assert status == 405 and headers['allow'] == 'POST, OPTIONS', headers
        server.error(405, 'DELETE', '/v1/models')
        server.error(415, 'POST', '/v1/chat/completions', 'x=1', {'content-type': 'application/x-www-form-urlencoded'}, text='application/json')
        server.error(415, 'POST', '/v1/chat/completions', b'x', {'content-encoding': 'br'}, text='br')
        assert server.ask('HEAD', '/version')[0] == 200 and server.ask('HEAD', '/version')[2] == b''
        assert server.ask('POST', '/v1/chat/completions', json.dumps(chat_body()), {'content-type': ''})[0] == 200


@case
def compressed_bodies_and_bombs():
    with Server('--max-body-mb', '4') as server:
        body = gzip.compress(json.dumps(chat_body()).encode())
        assert server.json('POST', '/v1/chat/completions', body, {'content-encoding': 'gzip'})['choices']
        bomb = gzip.compress(b'{"a": "' + b'x' * (64 << 20) + b'"}')
        server.error(413, 'POST', '/v1/chat/completions', bomb, {'content-encoding': 'gzip'})
        server.error(400, 'POST', '/v1/chat/completions', body[:-9], {'content-encoding': 'gzip'}, text='gzip')
        zstd = subprocess.run(['zstd', '-q', '-c'], input=json.dumps(chat_body()).encode(), capture_output=True) if has('zstd') else None
        if zstd:
            assert server.json('POST', '/v1/chat/completions', zstd.stdout, {'content-encoding': 'zstd'})['choices']


@case
def request_ids_and_the_access_log():
    with Server() as server:
        _, headers, _ = server.ask('POST', '/v1/chat/completions', chat_body(), {'x-request-id': 'mine-1'})
        assert headers['x-request-id'] == 'mine-1'
        _, headers, _ = server.ask('GET', '/version', headers={'x-request-id': 'bad id\t'})
        assert re.fullmatch(r'req-[0-9a-f]+', headers['x-request-id'])
        server.ask('GET', '/nowhere', headers={'x-request-id': 'mine-2'})
        lines = {line['request_id']: line for line in server.lines()}
        line = lines['mine-1']
        assert line['status'] == 200 and line['completion_tokens'] == 5 and line['outcome'] == 'complete' and line['duration_ms'] > 0, line
        assert lines['mine-2']['status'] == 404
        assert server.metric('deepinfer_http_requests_total') >= 3 and server.metric('deepinfer_completion_tokens_total') == 5


@case
def cross_origin():
    with Server() as server:
        _, headers, _ = server.ask('OPTIONS', '/v1/chat/completions', headers={'origin': 'http://localhost:3000', 'access-control-request-headers': 'authorization'})
        assert headers['access-control-allow-origin'] == 'http://localhost:3000' and headers['access-control-allow-headers'] == 'authorization'
        for origin in ('http://evil.example', 'http://localhost.evil.example', 'null'):
            status, headers, _ = server.ask('OPTIONS', '/v1/chat/completions', headers={'origin': origin})
            assert status == 204 and 'access-control-allow-origin' not in headers, origin
    with Server('--cors', '*') as server:
        assert server.ask('GET', '/version', headers={'origin': 'http://any.example'})[1]['access-control-allow-origin'] == 'http://any.example'


@case
def drafts_are_told():
    shipped = os.path.join(ROOT, 'models', 'tiny-v41')
    with Server('--spec', 'on', '--spec-schedule', 'fixed', model=shipped) as server:
        usage = server.chat('Tell me a short story about a fox.', thinking={'type': 'disabled'})['usage']
        details = usage['completion_tokens_details']
        assert 0 < details['accepted_prediction_tokens'] < usage['completion_tokens'] and details['rejected_prediction_tokens'] > 0, usage
        accepted, verified, drafted = (server.metric(f'deepinfer_spec_{what}_total{{place="1"}}') for what in ('accepted', 'verified', 'drafted'))
        assert 0 < accepted <= verified <= drafted, (accepted, verified, drafted)
        text = server.ask('GET', '/metrics')[2].decode()
        assert all(re.search(name, text) for name in (r'spec_step_seconds\{rows="\d+",context="0"\} 0\.', r'spec_pass_seconds\{sequences="1"\} 0\.', r'spec_gained_tokens -?\d')), text
        again = server.json('POST', '/v1/completions', {'model': 'test', 'prompt': 'Once upon a time', 'max_tokens': 40})['usage']
        assert sum(again['completion_tokens_details'].values()) > 0, again
    with Server('--profile', 'official', '--spec', 'on', model=shipped) as server:
        assert 'completion_tokens_details' not in server.chat('hi', thinking={'type': 'disabled'}, max_tokens=4)['usage']


@case
def documented_metrics_exist():
    with open(os.path.join(ROOT, 'docs', 'serve.md')) as file:
        table = file.read().split('## Metrics')[1].split('The access log')[0]
    names = re.findall(r'`((?:deepinfer|process)_\w+)', table) + ['deepinfer_engine_' + n for n in re.findall(r'`_(\w+)`', table)]
    with Server('--store', path('store-of-metrics')) as server:
        server.chat()
        server.raw(post('/v1/chat/completions', chat_body(stream=True)) , until=b'[DONE]')
        text = server.ask('GET', '/metrics')[2].decode()
        present = set(re.findall(r'^# TYPE (\w+)', text, re.M))
        ranks = {n for n in names if n.startswith('deepinfer_rank_')}
        assert len(names) > 20 and not set(names) - present - ranks - {'deepinfer_requests_aborted_total'}, set(names) - present
        assert not {n for n in present if n.startswith('deepinfer') and n not in names and n != 'deepinfer_build_info'}, present - set(names)
    with Server('--ranks', '2', '--threads', '2', model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        server.chat('hi', max_tokens=4)
        assert ranks and ranks <= set(re.findall(r'^# TYPE (\w+)', server.ask('GET', '/metrics')[2].decode(), re.M)), ranks
        assert sum(server.metric(f'deepinfer_rank_work_rows_total{{rank="{r}"}}') for r in (0, 1)) > 0


@case
def the_doctor_finds_nothing():
    keys = path('doctor-keys.txt')
    with open(keys, 'w') as file:
        file.write('a ' + hashlib.sha256(b'k').hexdigest() + '\n')
    with Server('--keys', keys) as server:
        done = run('doctor', '--url', server.url, '--key', 'k')
        assert done.returncode == 0 and b'failed' not in done.stdout and b'absent' not in done.stdout, done
        rows = json.loads(run('doctor', '--url', server.url + '/v1/', '--key', 'k', '--json').stdout)['rows']
        assert len(rows) > 15 and sum(row['result'] == 'ok' for row in rows) > 15, rows
        assert run('doctor', '--url', server.url).returncode == 1
    assert run('doctor', '--url', 'http://127.0.0.1:1').returncode == 1


# ---- the prefix cache ---------------------------------------------------------------------------------------------

@case
def why_it_was_not_cached():
    keys = path('why-keys.txt')
    with open(keys, 'w') as file:
        file.writelines(f'{name} {hashlib.sha256(name.encode()).hexdigest()}\n' for name in ('alice', 'bob'))
    words = ' '.join(f'word{i}' for i in range(80))
    changed = words.replace('word40', 'moon40')
    with Server('--keys', keys) as server:
        def ask(content, key, request_id, debug=True):
            fields = {'cache_debug': True} if debug else {}
            return server.chat(content, headers={'authorization': 'Bearer ' + key, 'x-request-id': request_id}, **fields)['usage']

        def why(request_id, key):
            return server.json('GET', '/v1/cache/why/' + request_id, headers={'authorization': 'Bearer ' + key})

        assert ask(words, 'alice', 'a1')['cache_debug']['reason'] == 'new'
        usage = ask(words, 'alice', 'a2')
        assert usage['cache_debug']['reason'] == 'none' and usage['cache_debug']['cached_tokens'] == usage['prompt_cache_hit_tokens'] > 0, usage
        assert 'cache_debug' not in ask(words, 'alice', 'a3', debug=False)
        told = ask(changed, 'alice', 'a4')['cache_debug']
        assert told['reason'] == 'changed' and 'moon' in told['here'] and 'word' in told['there'] and 'word39' in told['before'] + told['here'], told
        assert why('a4', 'alice') == {'request_id': 'a4', **told}
        # Another key has it: the key is not told, the operator's log is.
        assert ask(words, 'bob', 'b1')['cache_debug']['reason'] == 'new'
        assert why('b1', 'bob')['reason'] == 'new'
        server.error(404, 'GET', '/v1/cache/why/a4', headers={'authorization': 'Bearer bob'}, text='no answer')
        server.error(404, 'GET', '/v1/cache/why/nothing', headers={'authorization': 'Bearer alice'}, text='no answer')
        # The same on every wire, streamed and not.
        bodies = {'/v1/completions': {'prompt': words, 'stream_options': {'include_usage': True}}, '/v1/responses': {'input': words}, '/v1/messages': {'messages': [{'role': 'user', 'content': words}], 'max_tokens': 9},
                  '/v1/chat/completions': chat_body(words, stream_options={'include_usage': True})}
        for target, body in bodies.items():
            for stream in (False, True):
                asked = {**{name: value for name, value in body.items() if stream or name != 'stream_options'}, 'model': 'test', 'cache_debug': True, 'stream': stream}
                status, _, data = server.ask('POST', target, asked, {'authorization': 'Bearer alice'})
                assert status == 200 and b'"cache_debug":{' in data, (target, stream, data)
        lines = {line['request_id']: line for line in server.lines()}
        assert lines['a2']['cached_tokens'] > 0 and lines['a2']['cache_miss'] == 'none' and lines['b1']['cache_miss'] == 'other tenant'
        line = lines['a4']
        assert line['first_different'] == told['first_different'] and line['preempted'] == 0 and line['prefill_steps'] > 0, line
        assert 0 <= line['waiting_ms'] + line['prefill_ms'] + line['decode_ms'] <= line['duration_ms'], line
        assert 'moon' not in json.dumps(list(lines.values()))
        done = run('cache', 'why', 'a4', '--url', server.url, '--key', 'alice')
        assert done.returncode == 0 and b'token %d is the first that differs' % told['first_different'] in done.stdout, done
        assert json.loads(run('cache', 'why', 'a4', '--url', server.url + '/', '--key', 'alice', '--json').stdout) == why('a4', 'alice')
        done = run('cache', 'why', 'nothing', '--url', server.url, '--key', 'alice')
        assert done.returncode == 1 and done.stderr.count(b'\n') == 1 and b'no answer' in done.stderr, done
    assert run('cache', 'why', 'a4', '--url', 'http://127.0.0.1:1').returncode == 1


# ---- keys ---------------------------------------------------------------------------------------------------------

OPEN_ROUTES = {('GET', '/'), ('GET', '/health'), ('GET', '/health/live'), ('GET', '/health/ready')}


@case
def every_route_without_a_key():
    keys = path('keys.txt')
    with open(keys, 'w') as file:
        file.write('# people\nalice ' + hashlib.sha256(b'sk-alice').hexdigest() + '\n')
    with Server('--keys', keys) as server:
        key = {'authorization': 'Bearer sk-alice'}
        table = json.loads(server.ask('GET', '/openapi.json', headers=key)[2])
        routes = [(method.upper(), target) for target, methods in table['paths'].items() for method in methods]
        routes += [('POST', '/chat/completions'), ('GET', '/models'), ('GET', '/nowhere'), ('TRACE', '/'), ('DELETE', '/v1/models')]
        assert len(routes) > 20
        for method, target in routes:
            body = '{}' if method == 'POST' else None
            status, headers, data = server.ask(method, target.replace('{', '').replace('}', ''), body)
            if (method, target) in OPEN_ROUTES:
                assert status == 200, (method, target, status)
            else:
                assert status == 401, (method, target, status)
                assert json.loads(data)['error']['type'] == 'authentication_error' and headers['www-authenticate'] == 'Bearer'
            assert server.ask(method, target.replace('{', '').replace('}', ''), body, {'authorization': 'Bearer sk-mallory'})[0] == status
        error = server.error(401, 'GET', '/v1/models', headers={'authorization': 'Bearer sk-mallory'}, text='****lory')
        assert 'sk-mallory' not in error['message']
        server.json('GET', '/v1/models', headers=key)
        server.json('GET', '/v1/models', headers={'x-api-key': 'sk-alice'})
        server.chat(headers=key)
        # A new file is taken over while the server runs, and what is gone is gone.
        with open(keys, 'w') as file:
            file.write('bob ' + hashlib.sha256(b'sk-bob').hexdigest() + '\n')
        eventually(lambda: server.ask('GET', '/v1/models', headers={'x-api-key': 'sk-bob'})[0] == 200)
        server.error(401, 'GET', '/v1/models', headers=key)
        with open(keys, 'w') as file:
            file.write('bob not-a-hash\n')
        time.sleep(1.5)
        server.json('GET', '/v1/models', headers={'x-api-key': 'sk-bob'})  # the good keys stay
        assert all('sk-' not in json.dumps(line) for line in server.lines())
    empty = path('empty.txt')
    open(empty, 'w').close()
    with Server('--keys', empty) as server:
        server.error(401, 'GET', '/v1/models')
    done = run('serve', '--keys', path('missing.txt'))
    assert done.returncode == 1 and b'missing.txt' in done.stderr


# ---- life of a server ---------------------------------------------------------------------------------------------

@case
def drain_finishes_streams():
    with Server(model=slow(5)) as server:
        stream = stream_in_background(server)
        assert stream.begun.wait(20)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
        assert stream.done.wait(5) and b'[DONE]' in stream.out and b'"finish_reason":"stop"' in stream.out
        assert time.monotonic() - begin > 0.3
        assert b'a second signal leaves now' in server.process.stderr.read()


@case
def drain_has_a_limit_and_a_second_signal_leaves():
    for flags, signals in ((['--drain-timeout', '1'], 1), (['--drain-timeout', '60'], 2)):
        with Server(*flags, model=slow(200)) as server:
            stream = stream_in_background(server)
            assert stream.begun.wait(20)
            for _ in range(signals):
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            begin = time.monotonic()
            assert server.process.wait(10) == 0
            assert time.monotonic() - begin < 5
            assert stream.done.wait(5) and b'[DONE]' not in stream.out


@case
def a_stalled_engine_is_not_ready_and_recovers():
    model = script('stall.jsonl', {'match': 'stall', 'text': 'one two three', 'faults': [{'token': 1, 'kind': 'stall', 'ms': 4000}]}, {'text': 'fine'})
    with Server('--stall-limit', '1', model=model) as server:
        assert server.json('GET', '/health/ready') == {'status': 'ready'}
        stream = stream_in_background(server, chat_body('stall', stream=True))
        eventually(lambda: server.ask('GET', '/health/ready')[0] == 503, 'stays ready')
        body = server.json('GET', '/health/ready', status=503)
        assert body['status'] == 'stalled' and 'has not finished a step for' in body['reason'], body
        assert server.ask('GET', '/health/ready')[1]['retry-after'] == '1'
        assert server.json('GET', '/health/live') == {'status': 'live'}
        assert server.metric('deepinfer_ready') == 0
        eventually(lambda: server.ask('GET', '/health')[0] == 200, 'stays stalled')
        assert stream.done.wait(10) and b'[DONE]' in stream.out
        server.settles()


@case
def steps_that_fail_end_in_errors():
    model = script('fail.jsonl', {'text': 'one two three four'}, faults=[{'step': 3, 'kind': 'error'}])
    with Server(model=model) as server:
        data = server.ask('POST', '/v1/chat/completions', chat_body(stream=True))[2]
        errors = [e for e in events(data) if 'error' in e]
        assert len(errors) == 1 and b'[DONE]' not in data and events(data)[-1] == errors[0], data
        assert server.chat()['choices'][0]['message']['content'] == 'one two three four'
        server.settles()


@case
def deadlines():
    with Server(model=slow(50)) as server:
        server.error(504, 'POST', '/v1/chat/completions', chat_body(), {'x-request-timeout': '0.5'}, text='deadline')
        assert server.chat(headers={'x-request-timeout': 'soon'}, max_tokens=2)['choices']
    with Server('--request-timeout', '1', model=slow(50)) as server:
        begin = time.monotonic()
        server.error(504, 'POST', '/v1/chat/completions', chat_body(), text='deadline')
        assert time.monotonic() - begin < 3
        data = server.ask('POST', '/v1/chat/completions', chat_body(stream=True))[2]
        assert events(data)[-1]['error']['type'] == 'timeout_error'
        server.settles()


@case
def vanished_clients_free_their_requests():
    with Server(model=slow(50)) as server:
        for stream in (True, False):
            sockets = []
            for _ in range(8):
                sock = socket.create_connection(('127.0.0.1', server.port))
                sock.sendall(post('/v1/chat/completions', chat_body(stream=stream)))
                sockets.append(sock)
            eventually(lambda: server.metric('deepinfer_engine_running') == 8)
            for sock in sockets:
                sock.close()
            server.settles()
        assert server.metric('deepinfer_requests_aborted_total') == 16
        assert sum(line.get('outcome') == 'client_gone' for line in server.lines()) == 16


@case
def a_full_queue_says_429():
    with Server('--batch', '1', '--queue', '1', model=slow(50)) as server:
        streams = [stream_in_background(server) for _ in range(2)]
        eventually(lambda: server.metric('deepinfer_engine_running') + server.metric('deepinfer_engine_waiting') == 2)
        said = {'model': 'test', 'max_tokens': 4, 'messages': [{'role': 'user', 'content': 'hi'}]}
        for route, body in (('/v1/chat/completions', chat_body()), ('/v1/chat/completions', chat_body(stream=True)), ('/v1/messages', said),
                            ('/v1/responses', {'model': 'test', 'input': 'hi'})):
            status, headers, data = server.ask('POST', route, body)
            assert status == 429 and headers['retry-after'] == '1' and headers['retry-after-ms'] == '1000', (route, status, data)
            assert headers['x-should-retry'] == 'true' and json.loads(data)['error']['type'] == 'rate_limit_error', (route, data)
        assert len(streams) == 2


@case
def start_errors_are_one_line():
    with Server() as server:
        for words, text in ((['--port', str(server.port)], 'is in use'), (['--tls-certificate', 'x'], '--tls-key'),
                            (['--tls-certificate', path('hello.jsonl'), '--tls-key', path('hello.jsonl')], 'certificate'),
                            (['--host', 'no.such.host.invalid'], 'no such address')):
            begin = time.monotonic()
            done = run('serve', '-m', hello(), *words)
            lines = done.stderr.decode().strip().split('\n')
            assert done.returncode == 2 and len(lines) == 1 and text in lines[0], (words, done)
            assert text == 'no such address' or time.monotonic() - begin < 2
        assert server.chat()


@case
def configuration_files():
    done = run('serve', '--print-config')
    assert done.returncode == 0
    text = done.stdout.decode()
    assert 'port = 8080' in text and '# port to listen on' in text
    with open(os.path.join(ROOT, 'docs', 'serve.toml')) as file:
        assert file.read() == text, 'docs/serve.toml is stale: build/release/deepinfer serve --print-config > docs/serve.toml'
    with open(path('all.toml'), 'w') as file:
        file.write(text)
    again = run('serve', '--config', path('all.toml'), '--print-config')
    assert again.stdout.decode() == text, again.stderr
    for wrong, message in (('prot = 1', 'port'), ('port = "x"', 'port'), ('port = 99999', '65535'), ('port = ', 'wrong.toml:1'),
                           ('port = [1]', 'must be'), ('a.b = 1', 'unknown setting')):
        with open(path('wrong.toml'), 'w') as file:
            file.write(wrong + '\n')
        done = run('serve', '--config', path('wrong.toml'))
        assert done.returncode == 2 and message in done.stderr.decode() and done.stderr.count(b'\n') == 1, (wrong, done)
    with open(path('some.toml'), 'w') as file:
        file.write('served_model_name = "from-file"\nmax-body-mb = 2\ndrain-timeout = 0.5\n')
    assert b'max-body-mb = 3\n' in run('serve', '--config', path('some.toml'), '--max-body-mb', '3', '--print-config').stdout
    assert run('serve', '--config', path('missing.toml')).returncode == 1


@case
def tls():
    if not has('openssl'):
        return
    certificate, key = path('cert.pem'), path('key.pem')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost',
                    '-addext', 'subjectAltName=DNS:localhost', '-keyout', key, '-out', certificate], check=True, capture_output=True)
    with Server('--tls-certificate', certificate, '--tls-key', key, '--host', 'localhost') as server:
        assert server.url.startswith('https://')
        connection = http.client.HTTPSConnection('localhost', server.port, context=ssl.create_default_context(cafile=certificate), timeout=20)
        for _ in range(2):
            connection.request('POST', '/v1/chat/completions', json.dumps(chat_body(stream=True)), {'content-type': 'application/json'})
            assert connection.getresponse().read().endswith(b'[DONE]\n\n')
        server.raw(b'GET / HTTP/1.1\r\nhost: a\r\n\r\n')
        connection.request('GET', '/version')
        assert connection.getresponse().status == 200


# ---- bad input ----------------------------------------------------------------------------------------------------

def status_of(data):
    return int(data[9:12]) if data.startswith(b'HTTP/1.1 ') else None


@case
def bad_input():
    deep = '{"a":' * 10000 + '1' + '}' * 10000
    chunked = 'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n'
    flood = 'GET /version HTTP/1.1\r\nhost: a\r\n' + ''.join(f'x-{i}: {i}\r\n' for i in range(5000)) + '\r\n'
    table = [
        ('a body of 100 MB', post('/v1/chat/completions', b'x' * (100 << 20)), 413),
        ('10,000 levels', post('/v1/chat/completions', deep), 400),
        ('invalid UTF-8', post('/v1/chat/completions', b'{"model":"test","messages":[{"role":"user","content":"\xff\xfe"}]}'), 400),
        ('an empty body', post('/v1/chat/completions', b''), 400),
        ('no JSON', post('/v1/chat/completions', 'hello'), 400),
        ('a list', post('/v1/chat/completions', []), 400),
        ('wrong types', post('/v1/chat/completions', chat_body(temperature='hot')), 400),
        ('messages of numbers', post('/v1/chat/completions', {'model': 'test', 'messages': [1]}), 400),
        ('a huge number', post('/v1/chat/completions', json.dumps(chat_body(max_tokens=0)).replace('"max_tokens": 0', '"max_tokens": 1e999')), 400),
        ('a long number', post('/v1/chat/completions', json.dumps(chat_body(seed=0)).replace('"seed": 0', '"seed": ' + '9' * 5000)), 400),
        ('NaN', post('/v1/chat/completions', json.dumps(chat_body(temperature=0)).replace('"temperature": 0', '"temperature": NaN')), 400),
        ('a bad chunk length', (chunked + '\r\nzz\r\nabc\r\n0\r\n\r\n').encode(), 400),
        ('a negative chunk length', (chunked + '\r\n-5\r\nabc\r\n0\r\n\r\n').encode(), 400),
        ('an endless chunk line', (chunked + '\r\n3;' + 'x' * 200000).encode(), 400),
        ('an endless trailer', (chunked + '\r\n0\r\nx: ' + 'x' * 200000).encode(), 400),
        ('both lengths', (chunked + 'content-length: 5\r\n\r\n0\r\n\r\n').encode(), 400),
        ('two lengths', b'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}', 400),
        ('a header flood', flood.encode(), 431),
        ('a long header', b'GET / HTTP/1.1\r\nhost: a\r\nx: ' + b'x' * 100000 + b'\r\n\r\n', 431),
        ('a long target', b'GET /' + b'x' * 20000 + b' HTTP/1.1\r\nhost: a\r\n\r\n', 414),
        ('no host', b'GET / HTTP/1.1\r\n\r\n', 400),
        ('HTTP/2', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 505),
        ('TLS to a plain port', b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' + b'\x00' * 300, 400),
        ('a path up', b'GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\n\r\n', 404),
        ('a file path up', b'GET /v1/files/..%2f..%2fetc%2fpasswd HTTP/1.1\r\nhost: a\r\n\r\n', 404),
        ('an unknown method', b'BREW / HTTP/1.1\r\nhost: a\r\n\r\n', 405),
        ('a foreign coding', b'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n', 501),
        ('a thousand stops', post('/v1/chat/completions', chat_body(stop=['x'] * 1000)), 400),
        ('an empty conversation', post('/v1/chat/completions', {'model': 'test', 'messages': []}), 400),
        ('a prompt beyond the context', post('/v1/chat/completions', chat_body('word ' * 100000)), 400),
    ]
    with Server() as server:
        server.chat()
        for name, data, _ in table:  # once before memory is looked at
            server.raw(data, until=b'}}', timeout=20)
        server.settles()
        before = server.memory()
        for _ in range(3):
            for name, data, wanted in table:
                answer = server.raw(data, until=b'}}', timeout=20)
                assert status_of(answer) == wanted, f'{name}: {answer[:300]!r}, expected {wanted}'
                assert b'"error"' in answer, name
        assert server.chat()['choices'][0]['finish_reason'] == 'stop'
        server.settles()
        time.sleep(1)
        after = server.memory()
        assert after < before * 1.1 + (8 << 20), f'memory grew from {before >> 20} to {after >> 20} MB'


@case
def slow_clients_are_ended_and_others_served():
    with Server('--header-timeout', '1', '--idle-timeout', '2', '--write-timeout', '2', '--max-unsent-kb', '64') as server:
        begin = time.monotonic()
        results = {}

        def slowly(name, data, pause):
            results[name] = server.raw(data, chunk=1, pause=pause, timeout=20)

        threads = [threading.Thread(target=slowly, args=args) for args in (
            ('headers', b'GET /version HTTP/1.1\r\nhost: a\r\nx-slow: ' + b'y' * 20, 0.2),
            ('body', b'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n' + b' ' * 30, 0.2))]
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert server.chat()['choices']
            time.sleep(0.3)
        for thread in threads:
            thread.join(30)
        assert status_of(results['headers']) == 408, results['headers'][:200]
        assert status_of(results['body']) == 408, results['body'][:200]
        assert time.monotonic() - begin < 30


@case
def readers_of_a_byte_a_second_are_bounded():
    model = script('flood.jsonl', {'text': 'x' * 60 + ' ', 'hash': None} if False else {'bytes': 'flood ' * 600})
    with Server('--write-timeout', '2', '--max-unsent-kb', '64', '--batch', '16', model=model) as server:
        sockets = []
        for _ in range(8):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.connect(('127.0.0.1', server.port))
            sock.sendall(post('/v1/chat/completions', chat_body(stream=True)))
            sockets.append(sock)
        end = time.monotonic() + 20
        while time.monotonic() < end and server.metric('deepinfer_http_requests_in_flight') > 1:
            for sock in sockets:
                with contextlib.suppress(OSError):
                    sock.recv(1)
            time.sleep(0.2)
        server.settles()
        assert server.chat(max_tokens=3)['choices']
        for sock in sockets:
            sock.close()
        assert any(line.get('outcome') == 'slow_reader' for line in server.lines())


@case
def two_thousand_connections():
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2000
    if hard != resource.RLIM_INFINITY and hard < wanted + 100:
        wanted = hard - 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)) if hard != resource.RLIM_INFINITY else 4096, hard))
    with Server() as server:
        server.chat()
        before = server.memory()
        sockets = [socket.create_connection(('127.0.0.1', server.port)) for _ in range(wanted)]
        eventually(lambda: server.metric('deepinfer_http_connections') >= wanted, 'not all accepted')
        per_connection = (server.memory() - before) / wanted
        assert per_connection < 32 << 10, f'{per_connection} bytes for each idle connection'
        assert server.chat()['choices']
        for sock in sockets:
            sock.sendall(b'GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n')
        for sock in sockets:
            assert sock.recv(4096).startswith(b'HTTP/1.1 200')
        for sock in sockets:
            sock.close()
        eventually(lambda: server.metric('deepinfer_http_connections') <= 2, 'connections stay')


# ---- batches ------------------------------------------------------------------------------------------------------

def form(content, name='in.jsonl', purpose='batch'):
    boundary = 'xxBOUNDARYxx'
    body = (f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n--{boundary}\r\n'
            f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n').encode() + content + f'\r\n--{boundary}--\r\n'.encode()
    return body, {'content-type': f'multipart/form-data; boundary={boundary}'}


def batch_lines(count, **fields):
    lines = [{'custom_id': f'c{i}', 'method': 'POST', 'url': '/v1/chat/completions', 'body': chat_body(**fields)} for i in range(count)]
    return '\n'.join(json.dumps(line) for line in lines).encode() + b'\n'


@case
def files_and_batches():
    data = path('data-1')
    keys = path('batch-keys.txt')
    with open(keys, 'w') as file:
        for name in ('alice', 'bob'):
            file.write(f'{name} {hashlib.sha256(name.encode()).hexdigest()}\n')
    alice, bob = {'x-api-key': 'alice'}, {'x-api-key': 'bob'}
    with Server('--data', data, '--keys', keys) as server:
        body, headers = form(batch_lines(20) + b'{"broken"\n')
        file = server.json('POST', '/v1/files', body, {**headers, **alice})
        assert file['object'] == 'file' and file['bytes'] > 100 and file['filename'] == 'in.jsonl'
        assert server.json('GET', '/v1/files/' + file['id'], headers=alice) == file
        server.error(404, 'GET', '/v1/files/' + file['id'], headers=bob)
        assert server.json('GET', '/v1/files', headers=bob)['data'] == []
        assert server.ask('GET', f'/v1/files/{file["id"]}/content', headers=alice)[2] == batch_lines(20) + b'{"broken"\n'
        server.error(404, 'POST', '/v1/batches', {'endpoint': '/v1/chat/completions', 'input_file_id': file['id']}, bob)
        server.error(400, 'POST', '/v1/batches', {'endpoint': '/v1/embeddings', 'input_file_id': file['id']}, alice, text='endpoint')
        batch = server.json('POST', '/v1/batches', {'endpoint': '/v1/chat/completions', 'input_file_id': file['id'], 'metadata': {'a': 'b'}}, alice)
        server.error(404, 'GET', '/v1/batches/' + batch['id'], headers=bob)
        read = lambda: server.json('GET', '/v1/batches/' + batch['id'], headers=alice)
        eventually(lambda: read()['status'] == 'completed', 'the batch does not complete')
        done = read()
        assert done['request_counts'] == {'total': 21, 'completed': 20, 'failed': 1} and done['metadata'] == {'a': 'b'}, done
        records = [json.loads(l) for l in server.ask('GET', f'/v1/files/{done["output_file_id"]}/content', headers=alice)[2].splitlines()]
        assert [r['custom_id'] for r in records] == [f'c{i}' for i in range(20)]
        assert records[0]['response']['body']['choices'][0]['message']['content'] == 'Hello from the script.'
        errors = server.ask('GET', f'/v1/files/{done["error_file_id"]}/content', headers=alice)[2].splitlines()
        assert len(errors) == 1 and json.loads(errors[0])['error']['code'] == 'invalid_json'
        server.error(409, 'POST', f'/v1/batches/{batch["id"]}/cancel', headers=alice)
        assert server.json('DELETE', '/v1/files/' + file['id'], headers=alice)['deleted']
        server.error(404, 'GET', '/v1/files/' + file['id'], headers=alice)
        body, headers = form(b'', purpose='fine-tune')
        server.error(400, 'POST', '/v1/files', body, {**headers, **alice}, text='purpose')
        server.error(415, 'POST', '/v1/files', '{}', alice)


@case
def batches_survive_kill_and_can_be_cancelled():
    data = path('data-2')
    model = script('slow-batch.jsonl', {'text': 'a b c d e f', 'delay_ms': 20})
    with Server('--data', data, '--batch', '2', model=model) as server:
        body, headers = form(batch_lines(40))
        file = server.json('POST', '/v1/files', body, headers)
        batch = server.json('POST', '/v1/batches', {'endpoint': '/v1/chat/completions', 'input_file_id': file['id']})
        eventually(lambda: server.metric('deepinfer_engine_ended_total') >= 6)
        server.error(409, 'DELETE', '/v1/files/' + file['id'])
        server.process.kill()
    with Server('--data', data, '--batch', '2', model=model) as server:
        read = lambda: server.json('GET', '/v1/batches/' + batch['id'])
        eventually(lambda: read()['status'] == 'completed', 'does not go on', 60)
        assert read()['request_counts'] == {'total': 40, 'completed': 40, 'failed': 0}
        assert server.metric('deepinfer_engine_ended_total') < 40  # the first six were kept
        second = server.json('POST', '/v1/batches', {'endpoint': '/v1/chat/completions', 'input_file_id': file['id']})
        eventually(lambda: server.json('GET', '/v1/batches/' + second['id'])['status'] == 'in_progress')
        server.json('POST', f'/v1/batches/{second["id"]}/cancel')
        eventually(lambda: server.json('GET', '/v1/batches/' + second['id'])['status'] == 'cancelled')
        server.settles()


# ---- the openai library -------------------------------------------------------------------------------------------

def client(server, **more):
    import openai
    return openai.OpenAI(base_url=server.url + '/v1', **{'api_key': 'none', 'max_retries': 0, **more})


@case
def faults_of_http_speak_the_dialect_of_the_path():
    with Server() as server:
        for target in ('/v1/messages', '/v1/chat/completions'):
            out = server.raw(f'POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n'.encode())
            head, _, body = out.partition(b'\r\n\r\n')
            assert head.startswith(b'HTTP/1.1 413') and b'x-should-retry: false' in head.lower(), out
            body = json.loads(body)
            assert (body.get('type') == 'error') == (target == '/v1/messages') and body['error']['message'], body
            assert (b'\nrequest-id:' in head.lower()) == (target == '/v1/messages')


@case
def a_batch_shares_prompts_with_its_key_only():
    keys = path('tenant-keys.txt')
    with open(keys, 'w') as file:
        for name in ('alice', 'bob'):
            file.write(f'{name} {hashlib.sha256(name.encode()).hexdigest()}\n')

    def cached(server, who):
        api = client(server, api_key=who)
        text = ' '.join(f'word{i}' for i in range(150))
        line = {'custom_id': 'c', 'method': 'POST', 'url': '/v1/chat/completions', 'body': chat_body(text, max_tokens=1)}
        file = api.files.create(file=('in.jsonl', json.dumps(line).encode() + b'\n'), purpose='batch')
        batch = api.batches.create(input_file_id=file.id, endpoint='/v1/chat/completions', completion_window='24h')
        eventually(lambda: api.batches.retrieve(batch.id).status == 'completed')
        record = json.loads(api.files.content(api.batches.retrieve(batch.id).output_file_id).text)
        return record['response']['body']['usage']['prompt_tokens_details']['cached_tokens']

    with Server('--keys', keys, '--data', path('data-4'), model=os.path.join(ROOT, 'models', 'tiny-v41')) as server:
        assert cached(server, 'alice') == 0
        assert cached(server, 'alice') > 64
        assert cached(server, 'bob') == 0


@case
def openai_batches():
    with Server('--data', path('data-3')) as server:
        api = client(server)
        file = api.files.create(file=('in.jsonl', batch_lines(3)), purpose='batch')
        batch = api.batches.create(input_file_id=file.id, endpoint='/v1/chat/completions', completion_window='24h')
        eventually(lambda: api.batches.retrieve(batch.id).status == 'completed')
        done = api.batches.retrieve(batch.id)
        assert done.request_counts.completed == 3
        assert len(api.files.content(done.output_file_id).text.splitlines()) == 3
        assert batch.id in [b.id for b in api.batches.list()] and file.id in [f.id for f in api.files.list()]
        files = [f.id for f in api.files.list()]  # the input and what the batch wrote
        assert len(files) == 2 and [f.id for f in api.files.list(limit=1).data] == files[:1]
        assert [f.id for f in api.files.list(limit=1)] == files  # the client asks for the next page
        server.error(400, 'GET', '/v1/batches?limit=1000', text='limit')
        assert api.files.delete(file.id).deleted


@case
def example_client():
    with Server() as server:
        done = subprocess.run([sys.executable, os.path.join(ROOT, 'examples', 'openai_client.py'), server.url], capture_output=True, timeout=60)
        assert done.returncode == 0 and b'Hello from the script.' in done.stdout, done


main()
