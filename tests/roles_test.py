#!/usr/bin/env python3
"""tests/roles_test.py PROGRAM [CASE...]: workers that encode, compute prompts or decode: the bytes of one process, whatever dies.
Last line `N passed, N failed`."""
import base64
import json
import os
import signal
import threading

from cases import case, main
from cluster_harness import MODEL, cluster, in_parallel, long_text, requests_of_all_kinds, story_of, words_of, worker
from serve_harness import Server, chat_body, eventually, path, picture, run, slow


def machine():
    return json.loads(run('doctor', '--json').stdout)['rows']


def requests_with_long_prompts():
    """The same kinds behind prompts that are worth a hand-over, some of which begin alike."""
    out = []
    for i, (where, body) in enumerate(requests_of_all_kinds()):
        body = dict(body)
        preamble = long_text(f'row {i % 20}')
        if 'messages' in body:
            last = body['messages'][-1]
            words = last['content']
            longer = [{'type': 'text', 'text': preamble}, *words] if isinstance(words, list) else preamble + words
            body['messages'] = [*body['messages'][:-1], {**last, 'content': longer}]
        elif 'prompt' in body:
            body['prompt'] = preamble + body['prompt']
        else:
            body['input'] = preamble + body['input']
        out.append((where, body))
    out += [('/v1/chat/completions', chat_body(long_text('row 21') + f'Thrice, {i}?', seed=i, n=3, max_tokens=9, logprobs=True)) for i in range(2)]
    return out


@case
def answers_are_those_of_one_process():
    wanted = requests_of_all_kinds() + requests_with_long_prompts() + requests_with_long_prompts()[:6]
    assert len(wanted) >= 50, len(wanted)
    with Server(model=MODEL) as alone:
        expected = [words_of(alone.json('POST', where, body, timeout=120)) for where, body in wanted]
        stories = [story_of(alone, seed, 60, behind=long_text(f'tale {seed}')) for seed in range(4)]
    with cluster(('encode', 'prefill', 'prefill', 'decode', 'decode'), worker_flags=('--spec', 'on')) as (router, workers):
        got = in_parallel([lambda where=where, body=body: words_of(router.json('POST', where, body, timeout=120)) for where, body in wanted])
        for (where, body), mine, one in zip(wanted, got, expected):
            assert mine == one, (where, str(body)[-600:], mine, one)
        assert in_parallel([lambda seed=seed: story_of(router, seed, 60, behind=long_text(f'tale {seed}')) for seed in range(4)]) == stories
        handed = router.metric('deepinfer_router_handed_total')
        received = [w.metric('deepinfer_hand_over_received_total') for w in workers]
        late = sum(w.metric('deepinfer_hand_over_late_total') for w in workers)
        assert handed > 20 and sum(received) + late >= handed and min(received[3:]) > 0, (handed, received, late)
        pictures = [w.metric('deepinfer_worker_pictures_total') for w in workers]
        assert pictures[0] > 0 and sum(pictures[1:]) == 0, pictures
        # Where UCX is, all of it goes that way: they are on one machine. Each process takes some 16 MB of shared memory for that.
        shared = os.statvfs('/dev/shm')
        fits = shared.f_bavail * shared.f_frsize > 256 << 20
        used, unused = ('ucx', 'tcp') if any(row['name'] == 'UCX' and row['result'] == 'ok' for row in machine()) else ('tcp', 'ucx')
        sent = {name: sum(w.metric(f'deepinfer_hand_over_pages_sent_total{{transport="{name}"}}') for w in workers) for name in (used, unused)}
        assert sum(sent.values()) > 0 and (sent[unused] == 0 or not fits), sent
        assert workers[0].metric('deepinfer_engine_accepted_total') == 0


@case
def a_killed_worker_of_either_role_costs_no_byte():
    seeds = range(6)
    with Server(model=MODEL) as alone:
        expected = [story_of(alone, seed, 120, behind=long_text(f'tale {seed}')) for seed in seeds]
    for victim, after in ((0, 0.4), (2, 0.9)):
        with cluster(('prefill', 'prefill', 'decode', 'decode')) as (router, workers):
            killing = threading.Timer(after, lambda w=workers[victim]: w.process.send_signal(signal.SIGKILL))
            killing.start()
            got = in_parallel([lambda seed=seed: story_of(router, seed, 120, behind=long_text(f'tale {seed}')) for seed in seeds])
            killing.join()
            assert got == expected, (victim, after, [(i, a, b) for i, (a, b) in enumerate(zip(got, expected)) if a != b])
            for w in (w for i, w in enumerate(workers) if i != victim):
                w.settles()
            eventually(lambda: router.metric('deepinfer_router_requests') == 0, 'requests are left in the router')


@case
def a_receiver_that_sleeps_is_left():
    with Server(model=MODEL) as alone:
        expected = [story_of(alone, seed, 80, behind=long_text(f'tale {seed}')) for seed in range(4)]
    with cluster(('prefill', 'decode', 'decode')) as (router, workers):
        stopping = threading.Timer(0.2, lambda: workers[1].process.send_signal(signal.SIGSTOP))
        stopping.start()
        got = in_parallel([lambda seed=seed: story_of(router, seed, 80, behind=long_text(f'tale {seed}')) for seed in range(4)])
        stopping.join()
        assert got == expected
        workers[1].process.send_signal(signal.SIGCONT)


@case
def whoever_is_left_does_everything():
    body = chat_body(long_text('row'), seed=1, max_tokens=20)
    with Server(model=MODEL) as alone:
        expected = words_of(alone.json('POST', '/v1/chat/completions', body))
    for roles in (('prefill',), ('decode',), ('encode', 'prefill'), ('prefill', 'all')):
        with cluster(roles) as (router, _):
            assert words_of(router.json('POST', '/v1/chat/completions', body)) == expected, roles
    with cluster(('encode', 'decode')) as (router, workers):
        image = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + base64.b64encode(picture()).decode()}}
        workers[0].process.kill()
        eventually(lambda: router.metric('deepinfer_router_worker_ready') == 1, 'the dead worker is thought to live')
        router.chat([{'type': 'text', 'text': 'What is it?'}, image], max_tokens=4)
        assert workers[1].metric('deepinfer_worker_pictures_total') == 1


@case
def a_short_prompt_or_a_known_one_stays_where_it_is():
    with cluster(('prefill', 'decode')) as (router, workers):
        router.chat('Hello.', max_tokens=4)
        assert router.metric('deepinfer_router_handed_total') == 0
        messages = [{'role': 'user', 'content': long_text('row')}]
        for turn in range(3):
            answer = router.json('POST', '/v1/chat/completions', {**chat_body(seed=1, max_tokens=30), 'messages': messages})
            messages += [{'role': 'assistant', 'content': answer['choices'][0]['message']['content']}, {'role': 'user', 'content': f'And {turn}?'}]
            eventually(lambda: router.metric('deepinfer_router_requests') == 0, 'it does not end')
        # The first turn was handed over; the decoder had its pages then.
        assert router.metric('deepinfer_router_handed_total') == 1
        assert workers[0].metric('deepinfer_engine_accepted_total') == 1


@case
def an_encode_worker_has_eyes_only():
    with worker() as whole, worker('--role', 'encode') as eyes:
        assert eyes.memory() < whole.memory() / 2, (eyes.memory(), whole.memory())
        assert eyes.ask('GET', '/health/ready')[0] == 200 and eyes.metric('deepinfer_engine_pages') == 0
        error = eyes.error(400, 'POST', '/v1/chat/completions', chat_body())
        assert 'encodes pictures' in error['message'] and 'router' in error['message'], error
        # A router that knows nobody else says so, and one that does gets its pictures from there.
        flags = ('--workers', f'127.0.0.1:{eyes.worker_port},127.0.0.1:{whole.worker_port}')
        with Server(*flags, model=MODEL, command='route') as router:
            eventually(lambda: router.metric('deepinfer_router_worker_ready') == 2, 'not ready')
            image = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + base64.b64encode(picture()).decode()}}
            body = chat_body([{'type': 'text', 'text': 'What is it?'}, image], seed=1, max_tokens=9)
            mine, alone = (words_of(server.json('POST', '/v1/chat/completions', body)) for server in (router, whole))
            assert mine == alone and eyes.metric('deepinfer_worker_pictures_total') == 1, (mine, alone)
    blind = run('serve', '--role', 'encode', '--worker-port', '8101', '--port', '0', '-m', slow(5))
    assert blind.returncode != 0 and b'no vision tower' in blind.stderr, blind


@case
def usage_tells_what_was_cached_where_the_prompt_was_computed():
    with cluster(('prefill', 'decode')) as (router, _):
        body = chat_body(long_text('row'), seed=1, max_tokens=6, cache_debug=True)
        usage = router.json('POST', '/v1/chat/completions', body)['usage']
        assert router.metric('deepinfer_router_handed_total') == 1
        assert usage['cache_debug']['cached_tokens'] == usage['prompt_tokens_details']['cached_tokens'] == 0, usage
        assert usage['cache_debug']['loaded_tokens'] == 0, usage


@case
def up_starts_workers_of_roles():
    with open(path('roles.toml'), 'w') as file:
        rows = ''.join(f'[{role}]\ncount = {count}\nthreads = 1\nstore = "off"\nmodel = "{MODEL}"\n' for role, count in (('encode', 1), ('prefill', 2), ('decode', 2)))
        file.write('[router]\nport = 0\nserved-model-name = "test"\naccess-log = "off"\n' + rows)
    with Server(model=MODEL, command=('up', path('roles.toml'))) as up:
        eventually(lambda: up.metric('deepinfer_router_worker_ready') == 5, 'five workers are not ready', 30)
        up.chat(long_text('row'), max_tokens=5)
        assert up.metric('deepinfer_router_handed_total') == 1
        scale = up.json('GET', '/scale')
        assert {role: part['workers_ready'] for role, part in scale['roles'].items()} == {'encode': 1, 'prefill': 2, 'decode': 2}, scale
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(30) == 0
    wrong = run('serve', '--role', 'decode', '--port', '0')
    assert wrong.returncode != 0 and b'--worker-port' in wrong.stderr, wrong


main()
