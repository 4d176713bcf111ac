#!/usr/bin/env python3
"""tests/schema_test.py PROGRAM SECONDS: schemathesis makes requests from /openapi.json, right and wrong ones; every answer must be
one the description allows, and none may be a 5xx. Last line `N passed, N failed`."""
import os
import subprocess
import sys

from serve_harness import FOLDER, Server, path

SECONDS = sys.argv[2] if len(sys.argv) > 2 else '30'
CHECKS = 'not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method'

with Server('--data', path('data'), '--queue', '1024') as server:
    tool = os.path.join(os.path.dirname(sys.executable), 'schemathesis')
    done = subprocess.run([tool, '--no-color', 'run', server.url + '/openapi.json', '--checks', CHECKS, '--phases', 'examples,coverage,fuzzing',
                           '--max-examples', '40', '--max-time', SECONDS, '--generation-deterministic', '--no-shrink', '--warnings', 'off',
                           '--continue-on-failure', '--request-timeout', '20'], capture_output=True, cwd=FOLDER.name, timeout=int(SECONDS) + 120)
    text = done.stdout.decode()
    print(text[-6000:])
    server.chat()
    server.settles()
print('1 passed, 0 failed' if done.returncode == 0 else '0 passed, 1 failed')
sys.exit(done.returncode)
