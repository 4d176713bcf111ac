#!/usr/bin/env python3
"""tests/membership_test.py PROGRAM [CASE...]: workers that enter themselves in etcd, and routers that find them there.
Last line `N passed, N failed`."""
import base64
import contextlib
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request

from cases import case, main
from cluster_harness import MODEL, Etcd, story_of, worker
from serve_harness import Server, chat_body, eventually, path, run, script, slow


def member(etcd, **more):
    return worker('--etcd', etcd.url, '--cluster', 'test', **more)


def router_of(etcd, *flags, model=MODEL):
    return Server('--etcd', etcd.url, '--cluster', 'test', *flags, model=model, command='route')


def known(router):
    return sum(line.startswith('deepinfer_router_worker_ready{') for line in router.ask('GET', '/metrics')[2].decode().split('\n'))


def has_ready(router, count):
    eventually(lambda: router.metric('deepinfer_router_worker_ready') == count and known(router) == count, f'not {count} workers', 30)


@case
def workers_join_leave_and_die():
    with Etcd() as etcd, member(etcd) as first, router_of(etcd) as router, router_of(etcd) as another:
        has_ready(router, 1)
        expected = story_of(router, 1)
        with member(etcd) as second, member(etcd) as third:
            has_ready(router, 3)
            has_ready(another, 3)
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(20) == 0
            eventually(lambda: known(router) == known(another) == 2, 'who left is still listed', 5)
            killed = time.monotonic()
            third.process.kill()
            third.process.wait()
            assert story_of(router, 1) == story_of(another, 1) == expected
            has_ready(router, 1)
            assert time.monotonic() - killed < 16, 'the lease of a dead worker is ten seconds'
            # The same place again, with a new epoch.
            with member(etcd, port=third.worker_port):
                has_ready(router, 2)
        assert story_of(router, 1) == expected and first.process.poll() is None


@case
def service_goes_on_without_etcd():
    with Etcd() as etcd, member(etcd) as first, member(etcd) as second, router_of(etcd) as router:
        has_ready(router, 2)
        expected = story_of(router, 2, 300)
        killing = threading.Timer(0.1, etcd.kill)
        killing.start()
        assert story_of(router, 2, 300) == expected
        killing.join()
        second.process.kill()
        second.process.wait()
        assert story_of(router, 2, 300) == expected, 'the last view is served'
        time.sleep(11)  # longer than a lease
        assert router.ask('GET', '/health/ready')[0] == 200
        etcd.start()
        eventually(lambda: known(router) == 1, 'the dead worker is still listed', 40)
        with member(etcd):
            has_ready(router, 2)
            # An etcd that has lost everything: whoever is there enters itself again, and nobody is refused meanwhile.
            etcd.kill(forget=True)
            etcd.start()
            end = time.monotonic() + 12
            while time.monotonic() < end:
                router.chat(max_tokens=2)
                assert router.metric('deepinfer_router_worker_ready') == 2
                time.sleep(0.2)
        assert story_of(router, 2, 300) == expected and first.process.poll() is None


@case
def an_entry_removed_by_hand_is_there_again():
    with Etcd() as etcd, member(etcd) as first, router_of(etcd) as router:
        has_ready(router, 1)
        key = base64.b64encode(f'/deepinfer/test/workers/all/127.0.0.1:{first.worker_port}'.encode()).decode()

        def ask_etcd(what):
            body = json.dumps({'key': key}).encode()
            return json.load(urllib.request.urlopen(f'{etcd.url}/v3/kv/{what}', body))
        assert ask_etcd('deleterange')['deleted'] == '1'
        eventually(lambda: 'kvs' in ask_etcd('range'), 'the entry stays away', 6)
        assert known(router) == 1 and router.metric('deepinfer_router_worker_ready') == 1


class Gateway(http.server.BaseHTTPRequestHandler):
    """An etcd that has compacted what the first watch asks for, and says garbage to the second."""
    lists, watches, entries = 0, 0, []

    def do_POST(self):
        self.rfile.read(int(self.headers['content-length']))
        if self.path == '/v3/kv/range':
            Gateway.lists += 1
            answer = {'header': {'revision': '7'}, 'kvs': Gateway.entries[:Gateway.lists]}
        else:
            Gateway.watches += 1
            answer = [{'result': {'canceled': True, 'compact_revision': '9'}}, 'nonsense'][min(Gateway.watches, 2) - 1]
        body = json.dumps(answer).encode() + b'\n'
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@case
def what_was_compacted_is_listed_anew():
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with worker() as first, worker() as second:
        for w in (first, second):
            address = f'127.0.0.1:{w.worker_port}'
            key, value = f'/deepinfer/test/workers/all/{address}', json.dumps({'address': address, 'epoch': '1'})
            Gateway.entries.append({'key': base64.b64encode(key.encode()).decode(), 'value': base64.b64encode(value.encode()).decode()})
        Gateway.entries.insert(1, {'key': 'bm8ga2V5', 'value': 'e30='})
        with Server('--etcd', f'http://127.0.0.1:1,http://127.0.0.1:{server.server_port}', '--cluster', 'test', model=MODEL, command='route') as router:
            has_ready(router, 2)
            assert Gateway.watches >= 2
    server.shutdown()


@case
def a_list_without_a_revision_is_no_list():
    """Whatever answers in etcd's place, a wrong proxy for one, empties no cluster."""
    asked = []

    class Wrong(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.path)
            self.rfile.read(int(self.headers['content-length']))
            self.send_response(200)
            self.send_header('content-length', '2')
            self.end_headers()
            self.wfile.write(b'{}')

        def log_message(self, *_):
            pass
    with Etcd() as etcd, member(etcd), router_of(etcd) as router:
        eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')
        etcd.kill()
        with http.server.ThreadingHTTPServer(('127.0.0.1', etcd.ports[0]), Wrong) as wrong:
            threading.Thread(target=wrong.serve_forever, daemon=True).start()
            eventually(lambda: '/v3/kv/range' in asked, 'the router has not asked')
            time.sleep(11)  # members that left a list go after ten seconds
            assert router.chat(max_tokens=2) and router.ask('GET', '/health/ready')[0] == 200
            wrong.shutdown()


@case
def up_starts_etcd_and_tells_what_is_wrong():
    with contextlib.ExitStack() as stack:
        stack.enter_context(Etcd())  # or the case is left out
        with open(path('etcd.toml'), 'w') as file:
            file.write(f'[etcd]\nstart = true\n[router]\nport = 0\nserved-model-name = "test"\naccess-log = "off"\n'
                       f'[worker]\ncount = 2\nthreads = 1\nstore = "off"\nmodel = "{slow(5)}"\n')
        up = stack.enter_context(Server(command=('up', path('etcd.toml'))))
        has_ready(up, 2)
        children = [int(pid) for pid in subprocess.run(['pgrep', '-P', str(up.process.pid)], capture_output=True, text=True).stdout.split()]
        etcd = next(pid for pid in children if open(f'/proc/{pid}/comm').read() == 'etcd\n')
        os.kill(etcd, signal.SIGKILL)
        up.chat(max_tokens=3)
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(20) == 0
        eventually(lambda: not any(os.path.exists(f'/proc/{pid}') for pid in children), 'children are left')
    for words, text in ((('route', '--port', '0'), b'--workers'), (('route', '--workers', 'a:1', '--etcd', 'b:2'), b'not both'),
                        (('route', '--etcd', 'http://a/b'), b'HOST:PORT'), (('route', '--etcd', 'a:2379', '--cluster', 'a/b'), b'--cluster'),
                        (('serve', '--etcd', 'a:2379'), b'--worker-port'), (('serve', '--worker-port', '8101', '--cluster-cert', 'x'), b'go together'),
                        (('serve', '--worker-port', '8101', '--worker-host', '0.0.0.0', '--port', '0'), b'--cluster-cert'),
                        (('route', '--workers', 'a:1', '--first-token-objective', 'caht=2'), b'chat'),
                        (('route', '--workers', 'a:1', '--cluster-cert', '/no/a', '--cluster-key', '/no/b', '--cluster-ca', '/no/c'), b'/no/')):
        wrong = run(*words, *([] if '--port' in words else ['--port', '0']))
        assert wrong.returncode == 2 and text in wrong.stderr, wrong


@case
def a_step_that_hangs_is_left_long_before_the_limit():
    # Step 300 of each worker's life; the one that goes on is far from it.
    model = script('hang.jsonl', {'text': 'word ' * 400, 'delay_ms': 20}, faults=[{'step': 300, 'kind': 'stall', 'ms': 25000}])
    with worker(model=model) as first, worker(model=model) as second:
        with Server('--workers', f'127.0.0.1:{first.worker_port},127.0.0.1:{second.worker_port}', model=model, command='route') as router:
            eventually(lambda: router.metric('deepinfer_router_worker_ready') == 2, 'not ready')
            begun = time.monotonic()
            answer = router.chat(max_tokens=390)
            assert answer['usage']['completion_tokens'] == 390 and time.monotonic() - begun < 20, time.monotonic() - begun
            assert router.metric('deepinfer_router_moved_total') == 1


def keys_of(name, **keys):
    with open(path(name), 'w') as file:
        for who, more in keys.items():
            digest = subprocess.run(['sha256sum'], input=f'sk-{who}'.encode(), capture_output=True).stdout.decode().split()[0]
            file.write(f'{who} {digest} {more}\n')
    return path(name)


def as_key(who):
    return {'authorization': f'Bearer sk-{who}'}


@case
def a_flood_of_one_key_leaves_room_for_another():
    model = slow(10)
    keys = keys_of('keys.txt', alice='', bob='')
    with worker('--batch', '2', '--queue', '8', model=model) as only:
        with Server('--workers', f'127.0.0.1:{only.worker_port}', '--keys', keys, model=model, command='route') as router:
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')
            ends, body = [], chat_body(max_tokens=60)

            def ask(who):
                status = router.ask('POST', '/v1/chat/completions', body, as_key(who), timeout=60)[0]
                ends.append((who, status))
            flood = [threading.Thread(target=ask, args=('alice',)) for _ in range(12)]
            for thread in flood:
                thread.start()
            time.sleep(0.4)
            for thread in (guests := [threading.Thread(target=ask, args=('bob',)) for _ in range(2)]):
                thread.start()
            for thread in flood + guests:
                thread.join()
            assert [who for who, status in ends if status == 429] == ['alice'] * 7, ends  # five of ten: half the room
            order = [who for who, status in ends if status == 200]
            assert order.count('bob') == 2 and order.count('alice') == 5 and order[-1] == 'alice', order
            eventually(lambda: router.ask('GET', '/scale', headers=as_key('bob'))[0] == 200)
            told = router.json('GET', '/scale', headers=as_key('bob'))
            assert told['output_tokens'] == 60 and told['decode_tokens_per_second'] > 0, told


@case
def a_key_has_its_limits_and_prompts_their_objective():
    keys = keys_of('limits.txt', alice='requests=2', bob='tokens=5')
    with worker(model=slow(5)) as only:
        address = ('--workers', f'127.0.0.1:{only.worker_port}')
        with Server(*address, '--keys', keys, model=slow(5), command='route') as router:
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')
            for who, answers in (('alice', (200, 200, 429)), ('bob', (200, 429))):
                for wanted in answers:
                    status, headers, data = router.ask('POST', '/v1/chat/completions', chat_body('a secret question', max_tokens=3), as_key(who))
                    assert status == wanted, (who, status, data)
                assert int(headers['retry-after']) > 5 and b'limit of this key' in data and b'127.0.0.1' not in data, (headers, data)
            eventually(lambda: '"alice"' in open(router.log).read(), 'no line in the log')
            for log in (router.log, only.log):
                assert not any(word in open(log).read() for word in ('sk-', 'secret question')), log
        with Server(*address, '--first-token-objective', '50,agent=0.000001', model=slow(5), command='route') as router:
            eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'not ready')
            router.chat(max_tokens=2)
            status, headers, data = router.ask('POST', '/v1/chat/completions', chat_body(max_tokens=2), {'x-cache-class': 'agent'})
            assert status == 429 and int(headers['retry-after']) >= 1 and b'would begin in' in data, (status, data)
            assert router.metric('deepinfer_router_refused_total') == 1


main(at_once=3)
