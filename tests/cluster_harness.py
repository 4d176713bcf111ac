"""What the tests of clusters share: workers, streamed answers."""
import os
import socket

from cases import ROOT
from serve_harness import Server, chat_body, events

MODEL = os.path.join(ROOT, 'models/tiny-v41')


def free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


def worker(*flags, port=None, model=MODEL):
    port = port or free_port()
    server = Server('--worker-port', str(port), *flags, model=model)
    server.worker_port = port
    return server


def story_of(server, seed, tokens=160, timeout=120):
    """A streamed answer as its text and finish reason."""
    body = chat_body(f'Tell a long story about {seed} foxes.', seed=seed, temperature=1.0, max_tokens=tokens, stream=True)
    status, _, data = server.ask('POST', '/v1/chat/completions', body, timeout=timeout)
    assert status == 200, data
    pieces = [choice for event in events(data) for choice in event.get('choices', [])]
    assert 'error' not in data.decode(), data[-500:]
    finishes = [piece['finish_reason'] for piece in pieces if piece.get('finish_reason')]
    assert len(finishes) == 1, finishes
    return ''.join(piece['delta'].get('content') or '' for piece in pieces), finishes[0]
