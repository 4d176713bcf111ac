"""The wire of `deepinfer serve` as far as the chat page uses it, with replies that a test asks for by a word in the message.
`Mock()` serves the chat page and the API on a free port of this machine; `mock.requests` holds the bodies that came,
`mock.aborted` counts streams whose client went away."""
import functools
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What the server sends with the page; the page's own policy is narrower still.
POLICY = ("default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data: blob:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
MODELS = [
    {'id': 'deepinfer', 'object': 'model', 'owned_by': 'deepinfer', 'name': 'DeepSeek-V4.1-Flash', 'context_window': 65536,
     'input_modalities': ['text', 'image'], 'effort': {'supported_levels': ['low', 'high', 'max'], 'default_level': 'high'}},
    {'id': 'tiny-v41', 'object': 'model', 'owned_by': 'deepinfer', 'context_window': 4096, 'input_modalities': ['text'],
     'effort': {'supported_levels': ['high']}},
]


@functools.cache
def page():
    return subprocess.run([sys.executable, os.path.join(ROOT, 'tools', 'build_page')], check=True, stdout=subprocess.PIPE).stdout


SHOWCASE = '''A **ring buffer** keeps the last *n* items in one block of memory. Writing moves a head forward; when it reaches the \
end it starts over, so nothing is ever shifted or allocated.

## A small one

```python
class Ring:
    """Keeps the last `size` values."""
    def __init__(self, size=1024):
        self.items = [None] * size  # one block, for good
        self.head = 0

    def push(self, value):
        self.items[self.head % len(self.items)] = value
        self.head += 1
```

What it costs beside the usual choices:

| Structure | Push | Random access | Memory |
|:----------|-----:|--------------:|:------:|
| Ring buffer | 4 ns | 2 ns | fixed |
| Deque | 11 ns | 6 ns | grows |
| Linked list | 38 ns | 900 ns | grows |

- [x] No allocation after the start
- [ ] Readers on other threads: use an atomic `head`

1. Choose a power of two for the size, then `% size` is one `and`.
2. Read [Disruptor](https://lmax-exchange.github.io/disruptor/) for the version with many readers.

> The cheapest copy is the one that is never made.
'''

HOSTILE = '''<script>window.hit = 1</script>
<img src=x onerror="window.hit = 2"> <svg/onload=window.hit=3>
[one](javascript:window.hit=4) [two](JaVaScRiPt&#58;window.hit=5) [three](data:text/html,<script>1</script>) ![x](https://outside.example/pixel.png)
[four](vbscript:x) [five](//outside.example) [six](https://fine.example/a_(b)?c=d&e=<f>) <javascript:alert(1)>
[seven](https://fine.example/"onmouseover="window.hit=6) <https://fine.example/auto> https://fine.example/bare.

| a <b onmouseover=window.hit=7> | `b|c` |
|---|---|
| <iframe src=javascript:window.hit=8> | x |

```html"><img src=x onerror=window.hit=9>
</code></pre><script>window.hit = 10</script>
```

<style>body { display: none }</style><base href="https://outside.example/"><form action="https://outside.example"><input></form>
'''

DEEP = '\n'.join('  ' * i + '- level ' + str(i) for i in range(400)) + '\n\n' + '>' * 3000 + ' quoted\n\n' + '*a **b ' * 3000 + ' c* d**' * 3000
BRACKETS = '[' * 40000 + ')](' * 20000 + '`' * 1000 + ' ``` ' * 3000 + '\\(' * 40000
THOUGHTS = ('The user wants a data structure explained.\n\nI should give code, a table of costs, and one caveat.\n'
            'First the idea, then the code.\n')
REPLIES = {
    'showcase whole': {'text': SHOWCASE, 'whole': True},
    **{'showcase by ' + name: {'text': SHOWCASE, 'pieces': n} for n, name in ((1, 'one'), (2, 'two'), (7, 'seven'))},
    'showcase': {'text': SHOWCASE, 'thinking': THOUGHTS},
    'ring buffer': {'text': SHOWCASE, 'thinking': THOUGHTS},
    'hostile': {'text': HOSTILE, 'thinking': HOSTILE},
    'deep': {'text': DEEP, 'whole': True},
    'brackets': {'text': BRACKETS, 'whole': True},
    'one line': {'text': 'long ' * 200000 + 'the end', 'whole': True},
    'ten thousand': {'text': ''.join(f'Word {i} of **many**, ' + ('\n\n' if i % 40 == 39 else '') for i in range(2500)),
                     'pieces': 4, 'pace': 0},
    'held': {'text': 'Some **bold words and `code', 'hold': 1.5},
    'half a link': {'text': 'See [the manual](https://fine.exa', 'hold': 1.5},
    'half a table': {'text': 'Costs:\n\n| Name | Price |\n|--', 'hold': 1.5},
    'slow': {'text': 'slow words come one by one ' * 200, 'pace': 0.03},
    'endless thoughts': {'thinking': 'Let me see. Then I look again at the *second* part.\n' * 400, 'text': 'Done.', 'pace': 0.01},
    'think': {'thinking': 'First I add the tens: 10 + 30 = 40.\nThen the ones: 2 + 0 = 2.\nTogether 42.', 'text': 'The sum is **42**.', 'pace': 0.01},
    'cut': {'text': 'This answer is cut in the mid', 'cut': True, 'hold': 0.3},
    'fault later': {'text': 'It began well', 'error': {'message': 'The engine stopped: step 812 gave values that are not numbers.',
                                                     'type': 'internal_error', 'param': None, 'code': 'internal_error'}},
    'length': {'text': 'An answer of many words that does not', 'finish': 'length'},
    'queue': {'text': 'Finally.', 'queue': 1.2},
    'arabic': {'text': 'مرحبًا! هذا نص **مهم** من اليمين إلى اليسار.\n\n- أولًا\n- ثانيًا\n'},
    'chinese': {'text': '**“深度”推理**的意思是：模型先想，再回答。见 https://fine.example/中文。\n\n1. 第一步\n2. 第二步\n'},
}
REFUSALS = {
    'status 400': (400, {}, "Invalid temperature value, the valid range of temperature is [0, 2]"),
    'status 401': (401, {}, 'Authentication Fails, Your api key: ****abcd is invalid'),
    'status 429': (429, {'Retry-After': '7'}, 'Too many requests. Your current concurrency is 26, which exceeds your concurrency limit of 25.'),
    'status 503': (503, {'Retry-After': '2'}, 'Not ready: the last step finished 41 s ago.'),
    'status 413': (413, {}, None),
    'status 500': (500, {}, 'Internal error'),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.mock.open.add(self.connection)

    def finish(self):
        self.server.mock.open.discard(self.connection)
        super().finish()

    def answer(self, status, body, kind='application/json', headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (('Content-Type', kind), ('Content-Length', str(len(data))), ('X-Request-Id', 'req-0001'), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, headers=None):
        if message is None:
            return self.answer(status, b'<html><h1>413 Request Entity Too Large</h1></html>', 'text/html')
        kinds = {401: 'authentication_error', 429: 'rate_limit_error', 500: 'internal_error', 503: 'overloaded_error'}
        error = {'message': message, 'type': kinds.get(status, 'invalid_request_error'), 'param': None,
                 'code': 'internal_error' if status >= 500 else 'invalid_request_error'}
        return self.answer(status, {'error': error}, headers=tuple((headers or {}).items()))

    def allowed(self):
        key = self.server.mock.key
        return key is None or self.headers.get('Authorization') == 'Bearer ' + key

    def do_GET(self):
        if self.path.split('?')[0] == '/':
            return self.answer(200, page(), 'text/html; charset=utf-8', (('Content-Security-Policy', POLICY),))
        if self.path == '/v1/models':
            if not self.allowed():
                return self.refuse(401, 'Authentication Fails, no api key was given')
            return self.answer(200, {'object': 'list', 'data': MODELS})
        return self.refuse(404, f'No route {self.path}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        mock = self.server.mock
        mock.requests.append(body)
        if not self.allowed():
            return self.refuse(401, 'Authentication Fails, Your api key: ****abcd is invalid')
        last = [message for message in body['messages'] if message['role'] == 'user'][-1]['content']
        asked = last if isinstance(last, str) else ' '.join(part.get('text', '') for part in last)
        for word, (status, headers, message) in REFUSALS.items():
            if word in asked and mock.refusing:
                return self.refuse(status, message, headers)
        reply = next((reply for word, reply in REPLIES.items() if word in asked), {'text': 'You said: ' + asked})
        if body['messages'][-1].get('prefix'):
            reply = {'text': ' end and goes on from there.'}
        self.stream(body, reply)

    def stream(self, body, reply):
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Transfer-Encoding', 'chunked')
        self.send_header('X-Request-Id', 'req-0002')
        self.end_headers()
        try:
            self.send_stream(body, reply)
        except OSError:
            self.server.mock.aborted += 1
            self.close_connection = True

    def send_stream(self, body, reply):
        thinking = reply.get('thinking') if body.get('thinking', {}).get('type') != 'disabled' else None
        pace = reply.get('pace', self.server.mock.pace)
        count = 0

        def event(delta, finish=None, usage=None):
            choice = {'index': 0, 'delta': delta, 'logprobs': None, 'finish_reason': finish}
            self.chunk('data: ' + json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'created': 1, 'model': body['model'],
                                              'system_fingerprint': 'fp_mock', 'choices': [choice], 'usage': usage}) + '\n\n')

        for _ in range(int(reply.get('queue', 0) / 0.2)):
            self.chunk(': keep-alive\n\n')
            time.sleep(0.2)
        event({'role': 'assistant', 'content': None if thinking else '', **({'reasoning_content': ''} if thinking else {})})
        for text, name in ((thinking, 'reasoning_content'), (reply['text'], 'content')):
            size = len(text) if text and reply.get('whole') else reply.get('pieces', 5)
            for at in range(0, len(text or ''), max(1, size)):
                event({'content': None, 'reasoning_content': None, name: text[at:at + size]})
                count += 1
                if pace:
                    time.sleep(pace)
        time.sleep(reply.get('hold', 0))
        if reply.get('cut'):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if 'error' in reply:
            self.chunk('data: ' + json.dumps({'error': reply['error']}) + '\n\n')
        else:
            usage = {'prompt_tokens': 1204, 'completion_tokens': count, 'total_tokens': 1204 + count,
                     'prompt_tokens_details': {'cached_tokens': 1152}, 'prompt_cache_hit_tokens': 1152, 'prompt_cache_miss_tokens': 52}
            if thinking:
                usage['completion_tokens_details'] = {'reasoning_tokens': (len(thinking) + 4) // 5}
            event({'content': '', 'reasoning_content': None}, reply.get('finish', 'stop'), usage)
            self.chunk('data: [DONE]\n\n')
        self.wfile.write(b'0\r\n\r\n')

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))


class Mock:
    def __init__(self):
        self.requests, self.open, self.aborted, self.key, self.refusing, self.pace = [], set(), 0, None, True, 0.002
        self.start(0)

    def start(self, port):
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Handler)
        self.server.daemon_threads = True
        self.server.mock = self
        self.port = self.server.server_address[1]
        self.url = f'http://127.0.0.1:{self.port}/'
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.open):  # kept alive, they would answer on
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
