"""What the tests of clusters share: workers, requests of all kinds, streamed answers."""
import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time

from cases import LeftOut, ROOT
from serve_harness import Server, chat_body, events, eventually, has, path, picture

MODEL = os.path.join(ROOT, 'models/tiny-v41')


def free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


def worker(*flags, port=None, model=MODEL, **more):
    port = port or free_port()
    server = Server('--worker-port', str(port), *flags, model=model, **more)
    server.worker_port = port
    return server


class Etcd:
    def __init__(self):
        if not has('etcd'):
            raise LeftOut('etcd is not installed')
        self.folder, self.ports, self.process = path(f'etcd-{time.monotonic_ns()}'), (free_port(), free_port()), None
        self.url = f'http://127.0.0.1:{self.ports[0]}'
        self.start()

    def start(self):
        peer = f'http://127.0.0.1:{self.ports[1]}'
        self.process = subprocess.Popen(
            ['etcd', '--data-dir', self.folder, '--logger', 'zap', '--log-level', 'error', '--listen-client-urls', self.url, '--advertise-client-urls', self.url,
             '--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer, '--initial-cluster', f'default={peer}'], stderr=subprocess.DEVNULL)

    def kill(self, forget=False):
        self.process.kill()
        self.process.wait()
        if forget:
            shutil.rmtree(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def story_of(server, seed, tokens=160, timeout=120, behind=''):
    """A streamed answer as its text and finish reason."""
    body = chat_body(f'{behind}Tell a long story about {seed} foxes.', seed=seed, temperature=1.0, max_tokens=tokens, stream=True)
    status, _, data = server.ask('POST', '/v1/chat/completions', body, timeout=timeout)
    assert status == 200, data
    pieces = [choice for event in events(data) for choice in event.get('choices', [])]
    assert 'error' not in data.decode(), data[-500:]
    finishes = [piece['finish_reason'] for piece in pieces if piece.get('finish_reason')]
    assert len(finishes) == 1, finishes
    return ''.join(piece['delta'].get('content') or '' for piece in pieces), finishes[0]


@contextlib.contextmanager
def cluster(roles, *flags, model=MODEL, worker_flags=()):
    """So many workers, or one of each role."""
    with contextlib.ExitStack() as stack:
        roles = ['all'] * roles if isinstance(roles, int) else roles
        workers = [stack.enter_context(worker('--role', role, *worker_flags, model=model)) for role in roles]
        addresses = ','.join(f'127.0.0.1:{w.worker_port}' for w in workers)
        router = stack.enter_context(Server('--workers', addresses, *flags, model=model, command='route'))
        eventually(lambda: router.metric('deepinfer_router_worker_ready') == len(workers), 'the workers are not ready')
        yield router, workers


def long_text(about, sentences=60):
    return ' '.join(f'Number {i} of {about} is followed by number {i + 1}.' for i in range(sentences))


def requests_of_all_kinds():
    """(path, body): what clients ask for, each with a seed."""
    out = []
    for i in range(9):
        body = chat_body(f'What is {i} + {i * 3}? Say why.', seed=i, max_tokens=24)
        out.append(('/v1/chat/completions', body | [{'temperature': 0}, {'temperature': 0.9}, {'top_p': 0.8}, {'n': 2}, {'logprobs': True, 'top_logprobs': 3},
                                                    {'stop': ['a']}, {'presence_penalty': 0.5}, {'thinking': {'type': 'enabled'}}, {'logit_bias': {'300': 5}}][i]))
    out.append(('/v1/completions', {'model': 'test', 'prompt': 'The fox', 'max_tokens': 16, 'seed': 3}))
    out.append(('/v1/messages', {'model': 'test', 'max_tokens': 20, 'messages': [{'role': 'user', 'content': 'Tell me of a lamp.'}], 'temperature': 0}))
    out.append(('/v1/responses', {'model': 'test', 'input': 'Tell me of a train.', 'max_output_tokens': 20, 'temperature': 0}))
    out.append(('/v1/chat/completions', chat_body([{'type': 'text', 'text': 'What colour?'}, {
        'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + base64.b64encode(picture()).decode()}}], seed=4, max_tokens=12)))
    shape = {'type': 'object', 'properties': {'name': {'type': 'string', 'maxLength': 9}, 'age': {'type': 'integer', 'maximum': 99}}, 'required': ['name', 'age'], 'additionalProperties': False}
    schema = {'type': 'json_schema', 'json_schema': {'name': 'person', 'schema': shape, 'strict': True}}
    tool = {'type': 'function', 'function': {'name': 'add', 'description': 'Adds.', 'strict': True, 'parameters': {
        'type': 'object', 'properties': {'a': {'type': 'integer', 'maximum': 99}}, 'required': ['a'], 'additionalProperties': False}}}
    for more in ({'response_format': schema}, {'response_format': schema, 'thinking': {'type': 'enabled'}}, {'response_format': {'type': 'regex', 'regex': '[a-c]{3,9}'}},
                 {'tools': [tool], 'tool_choice': 'required'}, {'response_format': {'type': 'grammar', 'grammar': 'root ::= "yes" | "no"'}}):
        out.append(('/v1/chat/completions', chat_body('A person, please.', seed=8, temperature=0.8, max_tokens=60, **more) | more))
    long = ' '.join(f'Number {i} is followed by number {i + 1}.' for i in range(120))
    out += [('/v1/chat/completions', chat_body(long + f' What follows {i}?', seed=i, max_tokens=12)) for i in range(3)]
    return out


def words_of(answer):
    """What a client reads, without ids and times."""
    answer = json.loads(json.dumps(answer))
    for name in ('id', 'created', 'created_at', 'completed_at', 'system_fingerprint'):
        answer.pop(name, None)
    answer['usage'] = {k: v for k, v in answer['usage'].items() if k in ('prompt_tokens', 'completion_tokens', 'input_tokens', 'output_tokens')}
    for choice in answer.get('choices', []):
        for call in choice.get('message', {}).get('tool_calls') or []:
            call.pop('id')
    for item in answer.get('output', []) + (answer.get('content') or []):
        item.pop('id', None)
        item.pop('signature', None)
        item.pop('encrypted_content', None)
    return answer


def in_parallel(calls):
    results = [None] * len(calls)

    def one(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
