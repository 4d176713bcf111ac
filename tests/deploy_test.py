#!/usr/bin/env python3
"""tests/deploy_test.py PROGRAM [CASE...]: the manifests are valid, and what they say to the program and of it exists.
Last line `N passed, N failed`."""
import glob
import os
import re
import subprocess

import kubernetes_validate
import yaml

from cases import PROGRAM, ROOT, case, main
from cluster_harness import worker
from serve_harness import Server, eventually

FILES = sorted(glob.glob(os.path.join(ROOT, 'deploy/kubernetes/*.yaml')))


def documents():
    for name in FILES:
        with open(name) as file:
            yield from ((os.path.basename(name), document) for document in yaml.safe_load_all(file))


def containers():
    return [(name, document, container) for name, document in documents() if 'template' in document.get('spec', {})
            for container in document['spec']['template']['spec']['containers']]


@case
def manifests_are_valid():
    for name, document in documents():
        kubernetes_validate.validate(document, '1.31', strict=True)
        if document['kind'] in ('Deployment', 'StatefulSet'):
            labels = document['spec']['template']['metadata']['labels']
            assert document['spec']['selector']['matchLabels'].items() <= labels.items(), name
    assert len(FILES) >= 3


@case
def every_flag_and_path_exists():
    checked = 0
    with Server() as server:
        paths = server.json('GET', '/openapi.json')['paths']
        for name, document, container in containers():
            if 'args' not in container:
                continue
            command, *words = container['args']
            flags = set(re.findall(r'--[a-z-]+', subprocess.run([PROGRAM, command, '--help'], capture_output=True, text=True).stdout))
            assert {word for word in words if word.startswith('--')} <= flags, (name, words)
            # The values parse, too.
            parsed = subprocess.run([PROGRAM, command, *words, '--print-config'], capture_output=True, text=True)
            assert parsed.returncode == 0, (name, parsed.stderr)
            ports = {port['name']: port['containerPort'] for port in container['ports']}
            assert ports['http'] == int(words[words.index('--port') + 1]), name
            for probe in ('livenessProbe', 'readinessProbe'):
                assert container[probe]['httpGet']['path'] in paths, (name, probe)
            grace = document['spec']['template']['spec']['terminationGracePeriodSeconds']
            assert grace > float(words[words.index('--drain-timeout') + 1]) + 15, name
            checked += 1
    assert checked >= 2


@case
def every_metric_exists():
    with worker() as one, Server('--workers', f'127.0.0.1:{one.worker_port}', command='route') as router:
        eventually(lambda: router.ask('GET', '/health/ready')[0] in (200, 503))
        there = (one.ask('GET', '/metrics')[2] + router.ask('GET', '/metrics')[2]).decode()
    for name in FILES:
        with open(name) as file:
            for metric in re.findall(r'deepinfer_\w+', file.read()):
                assert f'\n{metric} ' in there or f'\n{metric}{{' in there, (name, metric)


main()
