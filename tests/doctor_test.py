#!/usr/bin/env python3
"""tests/doctor_test.py PROGRAM [CASE...]: `doctor --url` finds nothing in our own server, and each fault that a server in front of it
adds in the row that is about it. Last line `N passed, N failed`."""
import http.client
import http.server
import json
import re
import threading

from cases import case, main
from serve_harness import Server, run


class Breaker:
    """A server that passes everything on to another and changes answers with `change(path, text)` and `headers`."""

    def __init__(self, server, change=lambda path, text: text, headers=()):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *_):
                pass

            def forward(self):
                body = self.rfile.read(int(self.headers.get('content-length', 0)))
                connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=30)
                connection.request(self.command, self.path, body or None, {'content-type': 'application/json'} if body else {})
                answer = connection.getresponse()
                text = change(self.path, answer.read().decode())
                self.send_response(answer.status)
                kept = {name: answer.getheader(name) for name in ('content-type', 'x-should-retry') if answer.getheader(name)}
                for name, value in {**kept, **dict(headers), 'content-length': str(len(text.encode()))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_DELETE = forward

        self.http = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self.http.server_address[1]}'
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def failed(self):
        rows = json.loads(run('doctor', '--url', self.url, '--json').stdout)['rows']
        self.http.shutdown()
        self.http.server_close()
        return {row['name'] for row in rows if row['result'] == 'failed'}


def swap(pattern, replacement, wire):
    return lambda path, text: re.sub(pattern, replacement, text) if path.endswith(wire) else text


# Row of the table -> (what the server in front changes, on which wire).
FAULTS = [
    ('chat answer', r'"role":"assistant","content":"', '"role":"assistant","content":7,"x":"', 'chat/completions'),
    ('streamed answer', r'"delta":', '"text":', 'chat/completions'),
    ('chat tool call', r'"arguments":"', '"arguments":"{', 'chat/completions'),
    ('Anthropic stream', r'"type":"message_start","message":', '"type":"message_start","m":', 'messages'),
    ('Anthropic stream', r'"type":"content_block_delta","index":0', '"type":"content_block_delta","index":1', 'messages'),
    ('Anthropic stream', r'"type":"content_block_delta","index":0,', '"type":"content_block_delta",', 'messages'),
    ('Anthropic stream', r'event: content_block_stop\n', '', 'messages'),
    ('Anthropic tool call', r'"input":\{[^}]+\}', '"input":"x"', 'messages'),
    ('Responses stream', r'event: response.created\ndata: .*\n\n', '', 'responses'),
    ('Responses stream', r'"type":"response.created","response":', '"type":"response.created","r":', 'responses'),
    ('Responses stream', r'"output_index":0', '"output_index":3', 'responses'),
    ('Responses stream', r'"item_id":"', '"item_id":"x', 'responses'),
    ('Responses stream', r'"sequence_number":\d+', '"sequence_number":1', 'responses'),
    ('Responses stream', r'response\.(completed|incomplete)', 'response.over', 'responses'),
    ('Responses tool call', r'"call_id":"[^"]*"', '"call_id":null', 'responses'),
]


@case
def each_fault_fails_its_row():
    with Server() as server:
        assert Breaker(server).failed() == set()
        for row, pattern, replacement, wire in FAULTS:
            failed = Breaker(server, swap(pattern, replacement, wire)).failed()
            assert row in failed and len(failed) <= 2, (row, pattern, failed)
        assert Breaker(server, headers={'x-should-retry': 'true'}.items()).failed() == {'x-should-retry'}


@case
def streams_are_read_as_the_standard_says():
    def other(path, text):
        return re.sub(r'data: ', 'data:', text).replace('\n', '\r\n') if text.startswith(('data: ', 'event: ')) else text

    with Server() as server:
        assert Breaker(server, other).failed() == set()


main()
