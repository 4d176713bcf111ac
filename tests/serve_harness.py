"""What the tests of the server share: a running server, requests of all kinds, scripted models."""
import contextlib
import http.client
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

from cases import PROGRAM

FOLDER = tempfile.TemporaryDirectory(prefix='deepinfer-serve-')
ENVIRONMENT = {**os.environ, 'XDG_STATE_HOME': FOLDER.name, 'NO_PROXY': '*'}


def path(name):
    return os.path.join(FOLDER.name, name)


def script(name, *lines, **header):
    with open(path(name), 'w') as file:
        for line in ({'scripted': 1, **header}, *lines):
            file.write(json.dumps(line) + '\n')
    return 'scripted:' + path(name)


def hello():
    return script('hello.jsonl', {'text': 'Hello from the script.'})


def slow(delay_ms=20):
    return script(f'slow{delay_ms}.jsonl', {'text': 'word ' * 400, 'delay_ms': delay_ms})


class Server:
    """A running `deepinfer serve`, `route` or, as all its words, another command with an address."""

    def __init__(self, *flags, model=None, wait=True, env=None, store='off', command='serve', within=()):
        self.log = path(f'log-{time.monotonic_ns()}')
        unless = [] if command == 'serve' else ['--threads', '--store']
        defaults = {'--port': '0', '-m': model or hello(), '--access-log': self.log, '--threads': '1', '--store': store, '--served-model-name': 'test'}
        own = [word for flag, value in defaults.items() if value is not None and flag not in flags and flag not in unless for word in (flag, value)]
        words = command if isinstance(command, tuple) else (command, *own, *flags)
        self.process = subprocess.Popen([*within, PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**ENVIRONMENT, **(env or {})})
        self.port = None
        if wait:
            line = self.process.stdout.readline().decode()
            found = re.search(r'https?://(\S+):(\d+)', line)
            assert found, f'no address: {line!r} {self.process.stderr.read()!r}'
            self.url, self.host, self.port = found.group(0), found.group(1), int(found.group(2))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def ask(self, method, target, body=None, headers=None, timeout=30):
        """(status, headers, body) of one request on its own connection."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        headers = {**({'content-type': 'application/json'} if body is not None else {}), **(headers or {})}
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, data

    def json(self, method, target, body=None, headers=None, status=200, **more):
        got, _, data = self.ask(method, target, body, headers, **more)
        assert got == status, f'{method} {target}: {got} {data[:300]!r}'
        return json.loads(data) if data else None

    def error(self, status, method, target, body=None, headers=None, text=''):
        answer = self.json(method, target, body, headers, status)
        assert set(answer['error']) == {'message', 'type', 'param', 'code'}, answer
        assert text in answer['error']['message'], answer
        return answer['error']

    def chat(self, content='hi', status=200, headers=None, **fields):
        return self.json('POST', '/v1/chat/completions', chat_body(content, **fields), headers, status)

    def raw(self, data, until=None, timeout=10, chunk=None, pause=0):
        """Sends bytes and reads until the peer closes (or `until` is met)."""
        with socket.create_connection(('127.0.0.1', self.port), timeout=timeout) as sock:
            with contextlib.suppress(OSError):
                if chunk:
                    for at in range(0, len(data), chunk):
                        sock.sendall(data[at:at + chunk])
                        time.sleep(pause)
                else:
                    sock.sendall(data)
            out = b''
            with contextlib.suppress(OSError):
                while until is None or until not in out:
                    piece = sock.recv(65536)
                    if not piece:
                        break
                    out += piece
            return out

    def lines(self):
        time.sleep(0.5)
        with open(self.log) as file:
            return [json.loads(line) for line in file]

    def metric(self, name):
        text = self.ask('GET', '/metrics')[2].decode()
        return sum(float(line.rsplit(' ', 1)[1]) for line in text.split('\n') if re.match(re.escape(name) + r'[ {]', line))

    def memory(self):
        with open(f'/proc/{self.process.pid}/status') as file:
            return int(re.search(r'VmRSS:\s+(\d+)', file.read()).group(1)) * 1024

    def settles(self):
        """Everything of past requests is gone."""
        eventually(lambda: self.metric('deepinfer_http_requests_in_flight') == 1, 'requests stay in flight')
        eventually(lambda: self.metric('deepinfer_engine_running') + self.metric('deepinfer_engine_waiting') == 0, 'sequences stay')
        eventually(lambda: self.metric('deepinfer_engine_pages_leased') == 0, 'pages stay leased')
        # Two figures are two questions: a request that a leaving reader cancels may reach the engine between them.
        eventually(lambda: self.metric('deepinfer_engine_pages') ==
                   self.metric('deepinfer_engine_pages_free') + self.metric('deepinfer_engine_pages_cached'), 'pages are lost')
        eventually(lambda: self.metric('deepinfer_engine_accepted_total') == self.metric('deepinfer_engine_ended_total'), 'requests are lost')


def chat_body(content='hi', **fields):
    return {'model': 'test', 'messages': [{'role': 'user', 'content': content}], 'thinking': {'type': 'disabled'}, **fields}


def eventually(condition, what='not in time', patience=15):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def events(data):
    return [json.loads(line[6:]) for line in data.decode().split('\n\n') if line.startswith('data: {')]


def post(target, body, more=''):
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
    body = body.encode() if isinstance(body, str) else body
    head = f'POST {target} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n'
    return head.encode() + body


def run(*words, **more):
    return subprocess.run([PROGRAM, *words], capture_output=True, timeout=60, env=ENVIRONMENT, **more)


def stream_in_background(server, body=None):
    """A thread that reads a stream; `out` grows, `done` is set at its end."""
    class Stream:
        out, done, begun = b'', threading.Event(), threading.Event()

    stream = Stream()
    stream.done, stream.begun = threading.Event(), threading.Event()

    def read():
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', server.port), timeout=60) as sock:
            sock.sendall(post('/v1/chat/completions', body or chat_body(stream=True)))
            while piece := sock.recv(65536):
                stream.out += piece
                if b'word' in stream.out:
                    stream.begun.set()
                if b'[DONE]' in stream.out or b'0\r\n\r\n' in stream.out:
                    break
        stream.done.set()

    threading.Thread(target=read, daemon=True).start()
    return stream


def picture(width=60, height=40, color=(200, 30, 30)):
    """A PNG of one colour."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    rows = (b'\0' + bytes(color) * width) * height
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0))
            + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def has(program):
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in os.environ['PATH'].split(':'))
