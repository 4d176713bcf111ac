#!/usr/bin/env python3
"""tests/pull_test.py PROGRAM [CASE...]: `deepinfer pull` against a hub on this machine that cuts connections and lies.
Last line `N passed, N failed`."""
import hashlib
import http.server
import json
import os
import random
import re
import signal
import socketserver
import subprocess
import tempfile
import threading
import time

from cases import PROGRAM, case, main

FOLDER = tempfile.TemporaryDirectory(prefix='deepinfer-pull-')
BIG = random.Random(1).randbytes(5 << 20) + b'end'
FILES = {'config.json': b'{"a": 1}', 'model-00001.safetensors': BIG, 'sub/notes.txt': b'hello\n', 'empty': b''}


class Hub:
    """Serves FILES in the Hugging Face form. Faults are attributes; `requests` remembers (path, range)."""

    def __init__(self, files=None, **faults):
        self.files = files or FILES
        self.faults = faults
        self.requests, self.tokens, self.sent, self.num_cuts = [], [], 0, 0
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(self)

            def do_CONNECT(self):
                self.send_error(405)

        class Threads(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Threads(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.server.server_port}'
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def listing(self):
        out = []
        for name, data in self.files.items():
            item = {'rfilename': self.faults.get('rename', {}).get(name, name), 'size': len(data) + self.faults.get('size_off', {}).get(name, 0)}
            if len(data) > 1000:
                item['lfs'] = {'size': item['size'], 'sha256': hashlib.sha256(data).hexdigest()}
            item['blobId'] = hashlib.sha1(b'blob %d\0' % len(data) + data).hexdigest()
            out.append(item)
        return {'sha': 'c0ffee', 'siblings': out}

    def whole(self, handler, status, body, headers=()):
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header('content-length', str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler):
        path = handler.path
        if path.startswith('http://'):  # as a proxy
            path = '/' + path.split('/', 3)[3]
        self.requests.append((path, handler.headers.get('range')))
        self.tokens.append(handler.headers.get('authorization'))
        if self.faults.get('busy', 0) > 0:
            self.faults['busy'] -= 1
            return self.whole(handler, 503, b'busy')
        if path.startswith('/api/models/org/model/revision/main'):
            return self.whole(handler, 200, json.dumps(self.listing()).encode())
        if path.startswith('/api/'):
            return self.whole(handler, 404, b'{}')
        if self.faults.get('redirect') and not path.startswith('/moved'):
            return self.whole(handler, 302, b'', [('location', self.faults['redirect'] + '/moved' + path)])
        name = re.sub(r'^(/moved)?/org/model/resolve/c0ffee/', '', path)
        if name not in self.files:
            return self.whole(handler, 404, b'')
        data = self.faults.get('content', {}).get(name, self.files[name])
        begin, end = map(int, re.fullmatch(r'bytes=(\d+)-(\d+)', handler.headers['range']).groups())
        if self.faults.get('no_ranges'):
            return self.whole(handler, 200, data)
        piece = data[begin:end + 1]
        total = len(data) + self.faults.get('total_off', 0)
        handler.send_response(206)
        handler.send_header('content-range', f'bytes {begin}-{end}/{total}')
        handler.send_header('content-length', str(len(piece)))
        handler.end_headers()
        cut = self.faults.get('cut_after')
        if cut and len(piece) > cut and self.num_cuts < self.faults.get('cuts', 10**9):
            self.num_cuts += 1
            handler.wfile.write(piece[:cut])
            handler.wfile.flush()
            self.sent += cut
            handler.close_connection = True
            handler.connection.close()
            return
        for at in range(0, len(piece), 65536):
            handler.wfile.write(piece[at:at + 65536])
            self.sent += len(piece[at:at + 65536])
            time.sleep(self.faults.get('pace', 0))


def folder(name):
    return os.path.join(FOLDER.name, name)


def words(hub, target, *more):
    return [PROGRAM, 'pull', 'org/model', '--endpoint', hub.url, '-o', folder(target), '--range-mb', '1', '--timeout', '10', *more]


def pull(hub, target, *more):
    done = subprocess.run(words(hub, target, *more), capture_output=True, timeout=120, env={**os.environ, 'NO_PROXY': '*'})
    done.err = done.stderr.decode()
    return done


def whole(target):
    for name, data in FILES.items():
        with open(os.path.join(folder(target), name), 'rb') as file:
            assert file.read() == data, name
    left = [n for n in os.listdir(folder(target)) if '.part' in n]
    assert not left, left


@case
def whole_model_in_parallel_ranges():
    with Hub() as hub:
        done = pull(hub, 'a')
        assert done.returncode == 0 and '4 files' in done.err, done.err
        whole('a')
        ranges = [r for p, r in hub.requests if p.endswith('safetensors')]
        assert len(ranges) == 6 and 'bytes=0-1048575' in ranges, ranges
        before = len(hub.requests)
        assert pull(hub, 'a').returncode == 0
        assert len(hub.requests) == before + 1, 'a second run fetches the list only'


@case
def cut_connections():
    with Hub(cut_after=300_000) as hub:
        done = pull(hub, 'b', '--connections', '2')
        assert done.returncode == 0, done.err
        whole('b')
        assert hub.num_cuts >= 10 and hub.sent < len(BIG) + 1000, 'bytes were fetched twice'


@case
def busy_at_first():
    with Hub(busy=3) as hub:
        assert pull(hub, 'c').returncode == 0
        whole('c')


@case
def kill_and_go_on():
    with Hub(pace=0.02) as hub:
        child = subprocess.Popen(words(hub, 'd', '--connections', '2'), stderr=subprocess.DEVNULL)
        while hub.sent < 3 << 20:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert not os.path.exists(os.path.join(folder('d'), 'model-00001.safetensors'))
        hub.faults['pace'] = 0
        first, hub.sent = hub.sent, 0
        assert pull(hub, 'd').returncode == 0
        whole('d')
        assert hub.sent < len(BIG) - (1 << 20), f'{first} bytes came before, {hub.sent} after'


@case
def interrupt_says_how_to_go_on():
    with Hub(pace=0.05) as hub:
        child = subprocess.Popen(words(hub, 'e'), stderr=subprocess.PIPE)
        while hub.sent < 1 << 20:
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
        assert child.returncode == 130 and b'run the same command again' in err, err
        hub.faults['pace'] = 0
        assert pull(hub, 'e').returncode == 0
        whole('e')


@case
def lies_about_sizes():
    name = 'model-00001.safetensors'
    for number, faults in enumerate(({'total_off': 7}, {'size_off': {name: 100}}, {'size_off': {name: -100}}, {'no_ranges': True})):
        with Hub(**faults) as hub:
            done = pull(hub, f'f{number}')
            assert done.returncode == 1 and done.err.count('\n') == 1, (faults, done.err)
            assert not os.path.exists(os.path.join(folder(f'f{number}'), name))


@case
def wrong_content_never_gets_its_name():
    name = 'model-00001.safetensors'
    with Hub(content={name: b'x' + BIG[1:]}) as hub:
        done = pull(hub, 'g')
        assert done.returncode == 1 and 'checksum' in done.err, done.err
        assert not os.path.exists(os.path.join(folder('g'), name)) and not os.path.exists(os.path.join(folder('g'), name + '.part'))
        hub.faults.clear()
        assert pull(hub, 'g').returncode == 0
        whole('g')
    with Hub(content={'config.json': b'{"a": 2}'}) as hub:
        assert 'checksum' in pull(hub, 'h').err


@case
def disk_is_checked_first():
    with Hub(size_off={'model-00001.safetensors': 1 << 50}) as hub:
        done = pull(hub, 'i')
        assert done.returncode == 1 and 'free on that disk' in done.err, done.err
        assert len(hub.requests) == 1


@case
def names_that_lead_out_are_refused():
    for name in ('../evil', '/etc/evil', 'a/../../evil', 'a\\b', 'a/', ''):
        with Hub(rename={'config.json': name}) as hub:
            done = pull(hub, 'j')
            assert done.returncode == 1 and 'no name inside a folder' in done.err, (name, done.err)
    assert not os.path.exists(folder('evil'))


@case
def redirects_and_tokens():
    token = folder('token')
    with open(token, 'w') as file:
        file.write('secret\n')
    with Hub() as other, Hub(redirect=None) as hub:
        other.faults['redirect'] = None
        hub.faults['redirect'] = other.url
        assert pull(hub, 'k', '--token-file', token).returncode == 0
        whole('k')
        assert set(hub.tokens) == {'Bearer secret'} and set(other.tokens) == {None}, 'the token left the hub'
    with Hub() as hub:
        hub.faults['redirect'] = hub.url
        assert pull(hub, 'l').returncode == 0


@case
def a_proxy_is_used():
    with Hub() as hub, Hub() as proxy:
        done = pull(hub, 'm', '--proxy', proxy.url)
        assert done.returncode == 0, done.err
        assert not hub.requests and proxy.requests
        whole('m')


@case
def errors_are_one_line():
    with Hub() as hub:
        base = [PROGRAM, 'pull', '--endpoint', hub.url, '-o', folder('n')]
        for extra, code, text in ((['org/none'], 1, 'has no model'), (['org/model@v9'], 1, 'v9'), (['model'], 2, 'no model of a hub'),
                                  (['org/model', '--token-file', '/nonexistent'], 1, '/nonexistent')):
            done = subprocess.run([*base, *extra], capture_output=True, timeout=60)
            assert done.returncode == code and text in done.stderr.decode() and done.stderr.count(b'\n') == 1, (extra, done)
    done = subprocess.run([PROGRAM, 'pull', 'org/model', '--endpoint', 'http://127.0.0.1:1', '-o', folder('o')], capture_output=True, timeout=60)
    assert done.returncode == 1 and b'cannot connect' in done.stderr, done


main()
