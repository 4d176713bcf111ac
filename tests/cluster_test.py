#!/usr/bin/env python3
"""tests/cluster_test.py PROGRAM [CASE...]: workers behind a router: the bytes of one process, whatever dies.
Last line `N passed, N failed`."""
import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

from cases import case, main
from cluster_harness import MODEL, cluster, in_parallel, requests_of_all_kinds, story_of, words_of, worker
from serve_harness import Server, chat_body, eventually, path, picture, run, script, slow


@case
def answers_are_those_of_one_process():
    wanted = requests_of_all_kinds()
    with Server(model=MODEL) as alone:
        expected = [words_of(alone.json('POST', where, body, timeout=60)) for where, body in wanted]
    with cluster(3) as (router, _):
        got = in_parallel([lambda where=where, body=body: words_of(router.json('POST', where, body, timeout=60)) for where, body in wanted])
    for (where, body), mine, one in zip(wanted, got, expected):
        assert mine == one, (where, body, mine, one)


@case
def a_killed_worker_costs_no_byte():
    seeds = range(9)
    with Server(model=MODEL) as alone:
        expected = [story_of(alone, seed) for seed in seeds]
    with cluster(3) as (router, workers):
        killing = threading.Timer(0.25, lambda: workers[1].process.send_signal(signal.SIGKILL))
        killing.start()
        got = in_parallel([lambda seed=seed: story_of(router, seed) for seed in seeds])
        killing.join()
        assert router.metric('deepinfer_router_moved_total') > 0
        assert got == expected, [(i, a, b) for i, (a, b) in enumerate(zip(got, expected)) if a != b]
        # Those that are left take everything.
        assert [story_of(router, seed, 20) for seed in range(3)] == [story_of(workers[0], seed, 20) for seed in range(3)]


@case
def kills_in_a_row_cost_no_byte():
    seeds = range(8)
    with Server(model=MODEL) as alone:
        expected = [story_of(alone, seed, 400) for seed in seeds]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker()) for _ in range(2)]
        addresses = ','.join(f'127.0.0.1:{w.worker_port}' for w in workers)
        router = stack.enter_context(Server('--workers', addresses, model=MODEL, command='route'))
        done = threading.Event()

        def kill_and_restart():
            turn = 0
            while not done.wait(0.15 if turn == 0 else 0.4) and turn < 4:
                victim = workers[turn % 2]
                victim.process.send_signal(signal.SIGKILL)
                victim.process.wait()
                workers[turn % 2] = stack.enter_context(worker(port=victim.worker_port))
                turn += 1
        killer = threading.Thread(target=kill_and_restart)
        killer.start()
        got = in_parallel([lambda seed=seed: story_of(router, seed, 400) for seed in seeds])
        done.set()
        killer.join()
        assert router.metric('deepinfer_router_moved_total') > 0
    assert got == expected, [(i, a, b) for i, (a, b) in enumerate(zip(got, expected)) if a != b]


@case
def a_worker_that_stops_breathing_is_left():
    with Server(model=MODEL) as alone:
        expected = [story_of(alone, seed) for seed in range(4)]
    with cluster(2) as (router, workers):
        stopping = threading.Timer(0.15, lambda: workers[0].process.send_signal(signal.SIGSTOP))
        stopping.start()
        got = in_parallel([lambda seed=seed: story_of(router, seed) for seed in range(4)])
        stopping.join()
        assert got == expected
        assert router.metric('deepinfer_router_moved_total') > 0
        workers[0].process.send_signal(signal.SIGCONT)
        # It woke up with requests that are somebody else's now; they are cancelled, and it is a choice again.
        eventually(lambda: workers[0].metric('deepinfer_engine_running') == 0, 'requests of a router that left run on')
        assert story_of(router, 1) == expected[1]


@case
def without_a_worker_it_says_so_and_comes_back():
    with worker(model=slow(5)) as first:
        with Server('--workers', f'127.0.0.1:{first.worker_port}', model=slow(5), command='route') as router:
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')
            first.process.kill()
            first.process.wait()
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 503, 'still ready')
            assert b'worker 1' in router.ask('GET', '/health/ready')[2]
            status, headers, data = router.ask('POST', '/v1/chat/completions', chat_body())
            assert status == 503 and headers['retry-after'], (status, headers, data)
            assert b'no worker is ready' in data, data
            with worker(port=first.worker_port, model=slow(5)):
                eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'it does not come back')
                router.chat(max_tokens=3)


@case
def an_accepted_answer_waits_for_a_worker():
    model = slow(5)
    with worker(model=model) as first:
        with Server('--workers', f'127.0.0.1:{first.worker_port}', model=model, command='route') as router:
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')

            def replace():
                first.process.kill()
                first.process.wait()
                time.sleep(0.5)
                second.append(worker(port=first.worker_port, model=model))
            second = []
            replacing = threading.Timer(0.3, replace)
            replacing.start()
            answer = router.chat(max_tokens=200)
            replacing.join()
            with second[0]:
                assert answer['choices'][0]['message']['content'].strip() == ('word ' * 400)[:len(answer['choices'][0]['message']['content'])].strip()
                assert answer['usage']['completion_tokens'] == 200


@case
def another_model_is_no_choice():
    other = script('other.jsonl', {'text': 'Another model.'})
    with worker(model=slow(5)) as first, worker(model=other) as stranger:
        addresses = f'127.0.0.1:{first.worker_port},127.0.0.1:{stranger.worker_port}'
        with Server('--workers', addresses, '--policy', 'round_robin', model=slow(5), command='route') as router:
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')
            fingerprints = {router.chat(max_tokens=2)['system_fingerprint'] for _ in range(6)}
            assert len(fingerprints) == 1


@case
def secrets_must_match():
    for name, text in (('right', 'one secret\n'), ('wrong', 'another\n')):
        with open(path(name), 'w') as file:
            file.write(text)
    with worker('--cluster-secret', path('right')) as first:
        ports = ('--workers', f'127.0.0.1:{first.worker_port}', '--port', '0', '-m', MODEL)
        refused = run('route', *ports, '--cluster-secret', path('wrong'), '--wait-for-workers', '1.5')
        assert refused.returncode != 0 and b'secret' in refused.stderr, refused
        with Server('--workers', f'127.0.0.1:{first.worker_port}', '--cluster-secret', path('right'), model=MODEL, command='route') as router:
            router.chat(max_tokens=2)
    open_port = run('serve', '--worker-port', '8101', '--worker-host', '0.0.0.0', '--port', '0')
    assert open_port.returncode != 0 and b'--cluster-secret' in open_port.stderr, open_port


@case
def prompts_go_where_their_prefix_is():
    with cluster(3) as (router, workers):
        story = ' '.join(f'Fox {i} met fox {i + 1} at the river.' for i in range(100))
        messages = [{'role': 'user', 'content': story}]
        cached = []
        for turn in range(4):
            answer = router.json('POST', '/v1/chat/completions', {**chat_body(seed=1, max_tokens=8), 'messages': messages})
            cached.append(answer['usage'].get('prompt_tokens_details', {}).get('cached_tokens', 0))
            messages += [{'role': 'assistant', 'content': answer['choices'][0]['message']['content']}, {'role': 'user', 'content': f'And then, {turn}?'}]
            time.sleep(0.3)
        assert all(tokens > 500 for tokens in cached[1:]), cached
        held = [w.metric('deepinfer_engine_pages_cached') for w in workers]
        assert sum(pages > 0 for pages in held) == 1, held


@case
def a_client_that_leaves_frees_the_worker():
    with cluster(2, model=slow(20)) as (router, workers):
        for _ in range(3):
            with socket.create_connection(('127.0.0.1', router.port)) as sock:
                body = json.dumps(chat_body(stream=True)).encode()
                sock.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n' % len(body) + body)
                while b'word' not in sock.recv(65536):
                    pass
        for w in workers:
            w.settles()


@case
def a_stopped_worker_hands_its_answers_on():
    seeds = range(4)
    with Server(model=MODEL) as alone:
        expected = [story_of(alone, seed, 300) for seed in seeds]
    with cluster(2, worker_flags=('--drain-timeout', '0.1')) as (router, workers):
        stopping = threading.Timer(0.2, lambda: workers[0].process.send_signal(signal.SIGTERM))
        stopping.start()
        got = in_parallel([lambda seed=seed: story_of(router, seed, 300) for seed in seeds])
        stopping.join()
        assert got == expected
        assert workers[0].process.wait(10) == 0


@case
def a_full_worker_is_waited_for():
    model = slow(5)
    with worker('--batch', '1', '--queue', '1', model=model) as only:
        address = ('--workers', f'127.0.0.1:{only.worker_port}')
        with Server(*address, model=model, command='route') as a, Server(*address, model=model, command='route') as b:
            eventually(lambda: a.ask('GET', '/health/ready')[0] == b.ask('GET', '/health/ready')[0] == 200, 'not ready')
            answers = in_parallel([lambda router=router: router.ask('POST', '/v1/chat/completions', chat_body(max_tokens=60)) for router in (a, b, a, b)])
            # Either told at once, or served; never an error of ours.
            assert all(status in (200, 429) for status, _, _ in answers) and any(status == 200 for status, _, _ in answers), answers
            assert all(headers['retry-after'] for status, headers, _ in answers if status == 429)


@case
def a_worker_may_stop_while_it_encodes_a_picture():
    big = base64.b64encode(picture(1400, 1400)).decode()
    with cluster(2) as (router, workers):
        body = chat_body([{'type': 'text', 'text': 'What is it?'}, {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + big}}], max_tokens=4)
        stopping = threading.Timer(0.15, lambda: [w.process.send_signal(signal.SIGTERM) for w in workers[:1]])
        stopping.start()
        status, _, data = router.ask('POST', '/v1/chat/completions', body, timeout=60)
        stopping.join()
        assert status == 200, (status, data)
        assert workers[0].process.wait(30) == 0


@case
def up_starts_restarts_and_stops_a_cluster():
    with open(path('up.toml'), 'w') as file:
        file.write(f'[router]\nport = 0\nserved-model-name = "test"\naccess-log = "off"\n[worker]\ncount = 2\nthreads = 1\nstore = "off"\nmodel = "{MODEL}"\n')
    with Server('--port', '0', model=MODEL, command=('up', path('up.toml'))) as cluster_process:
        eventually(lambda: cluster_process.metric('deepinfer_router_worker_ready') == 2, 'two workers are not ready')
        before = story_of(cluster_process, 1)
        children = [int(pid) for pid in subprocess.run(['pgrep', '-P', str(cluster_process.process.pid)], capture_output=True, text=True).stdout.split()]
        worker_pid = next(pid for pid in children if b'--worker-port' in open(f'/proc/{pid}/cmdline', 'rb').read())
        os.kill(worker_pid, signal.SIGKILL)
        assert story_of(cluster_process, 1) == before
        eventually(lambda: cluster_process.metric('deepinfer_router_worker_ready') == 2, 'the worker does not come back')
        assert not os.path.exists(f'/proc/{worker_pid}')
        cluster_process.process.send_signal(signal.SIGTERM)
        assert cluster_process.process.wait(20) == 0
        eventually(lambda: not any(os.path.exists(f'/proc/{pid}') for pid in children), 'children are left')
    wrong = run('up', path('missing.toml'))
    assert wrong.returncode != 0 and b'missing.toml' in wrong.stderr, wrong
    with open(path('wrong.toml'), 'w') as file:
        file.write('[worker]\nthraeds = 2\n')
    wrong = run('up', path('wrong.toml'))
    assert wrong.returncode != 0 and b'threads' in wrong.stderr, wrong


@case
def up_names_its_children_and_gives_up_what_never_starts():
    for name, model in (('lame', '/no/such/model'), ('well', slow(5))):
        with open(path(f'{name}.toml'), 'w') as file:
            file.write(f'[router]\nport = 0\naccess-log = "off"\n[worker]\ncount = 1\nthreads = 1\nstore = "{path("kv")}"\nmodel = "{model}"\n')
    lame = run('up', path('lame.toml'))
    lines = lame.stderr.decode().strip().split('\n')
    assert lame.returncode != 0 and '/no/such/model' in lines[-1] and ('worker 1' in lines[-1] or 'router' in lines[-1]), lines
    assert any(line.startswith('deepinfer: worker 1: model /no/such/model') for line in lines), lines
    with Server(command=('up', path('well.toml'))) as up:
        eventually(lambda: up.metric('deepinfer_router_worker_ready') == 1, 'not ready')
        up.process.send_signal(signal.SIGTERM)
        said = up.process.communicate(timeout=20)[1].decode()
    assert 'deepinfer: worker 1: KV store in ' in said and 'deepinfer: deepinfer' not in said, said


@case
def a_folder_that_cannot_be_written_is_told_at_the_start():
    with open(path('a-file'), 'w'):
        wrong = run('serve', '--port', '0', '-m', slow(5), '--data', path('a-file'))
        assert wrong.returncode != 0 and wrong.stderr.decode().count('\n') == 1 and path('a-file') in wrong.stderr.decode(), wrong
    with Server('--store', path('a-file')) as server:  # costs hits only, and may be mended
        server.chat(max_tokens=2)
        server.process.send_signal(signal.SIGTERM)
        assert path('a-file') + ': cannot' in server.process.communicate(timeout=20)[1].decode()


@case
def workers_follow_a_wave():
    model = slow(20)
    with open(path('wave.toml'), 'w') as file:
        file.write(f'[router]\nport = 0\nserved-model-name = "test"\naccess-log = "off"\ntarget-first-token = 0.5\n'
                   f'[worker]\nmin = 1\nmax = 3\nthreads = 1\nbatch = 2\nstore = "off"\nmodel = "{model}"\n[scale]\nout_after = 1\nwindow = 3\n')
    with Server(model=model, command=('up', path('wave.toml'))) as up:
        def ready():
            return up.metric('deepinfer_router_worker_ready')
        eventually(lambda: ready() == 1, 'one worker is not ready')
        assert up.json('GET', '/scale')['utilisation'] == 0
        wave = [threading.Thread(target=lambda: answers.append(up.json('POST', '/v1/chat/completions', chat_body(max_tokens=300), timeout=60)['usage']['completion_tokens'])) for _ in range(9)]
        answers = []
        for thread in wave:
            thread.start()
        eventually(lambda: ready() == 3, 'the wave does not bring more workers', 30)
        for thread in wave:
            thread.join()
        assert answers == [300] * 9, answers
        eventually(lambda: ready() == 1, 'the workers stay', 40)
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(20) == 0


@case
def a_draining_worker_finishes_and_is_not_chosen():
    with cluster(2, model=slow(5)) as (router, workers):
        calls = [lambda: router.chat(max_tokens=150) for _ in range(4)]
        stopping = threading.Timer(0.3, lambda: workers[0].process.send_signal(signal.SIGTERM))
        stopping.start()
        answers = in_parallel(calls)
        stopping.join()
        assert all(answer['usage']['completion_tokens'] == 150 for answer in answers)
        workers[0].process.wait(10)
        assert workers[0].process.returncode == 0
        router.chat(max_tokens=2)


main()
