"""A small server with the Chat Completions interface that can be told how to behave; for tests of what talks to servers.

    with Server(lambda body, n: completion('4') if n > 1 else (429, {'retry-after': '1'}, b'')) as server:
        run('--url', server.url)
    assert server.requests == 2
"""
import http.server
import json
import socket
import threading


def completion(text='', finish='stop', **message):
    return {'id': 'x', 'object': 'chat.completion', 'choices': [{'index': 0, 'finish_reason': finish, 'message': {
        'role': 'assistant', 'content': text, **message}}], 'usage': {'prompt_tokens': 10, 'completion_tokens': 5}}


def question_of(body):
    return body['messages'][-1]['content']


class Server:
    """`answer(body, n)` gives an object, (status, headers, bytes), or 'drop' or 'hang' for the n-th question."""

    def __init__(self, answer, models=('mock',), port=0, context=None):
        self.requests, self.bodies, self.busy, self.most = 0, [], 0, 0
        self.lock = threading.Lock()
        self.stop_hanging = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *_):
                pass

            def send(self, status, headers, content):
                self.send_response(status)
                for name, value in {'content-type': 'application/json', 'content-length': str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self):
                if models is None:
                    return self.send(404, {}, b'{"error": {"message": "no such route"}}')
                if isinstance(models, int):
                    return self.send(models, {}, b'{"error": {"message": "who are you?"}}')
                if isinstance(models, bytes):
                    return self.send(200, {}, models)
                self.send(200, {}, json.dumps({'object': 'list', 'data': [{'id': name} for name in models]}).encode())

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers['content-length'])))
                with outer.lock:
                    outer.requests += 1
                    outer.busy += 1
                    outer.most = max(outer.most, outer.busy)
                    number = outer.requests
                    outer.bodies.append((dict(self.headers), body))
                try:
                    given = answer(body, number)
                    if given == 'hang':
                        outer.stop_hanging.wait(60)
                        given = 'drop'
                    if given == 'drop':
                        self.close_connection = True
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    self.send(*(given if isinstance(given, tuple) else (200, {}, json.dumps(given).encode())))
                finally:
                    with outer.lock:
                        outer.busy -= 1

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.http = Quiet(('127.0.0.1', port), Handler)
        if context:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        self.url = f'http://127.0.0.1:{self.port}'
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop_hanging.set()
        self.http.shutdown()
        self.http.server_close()
