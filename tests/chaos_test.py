#!/usr/bin/env python3
"""tests/chaos_test.py PROGRAM [CASE...]: a cluster while everything happens to it. CHAOS_SECONDS (40, shared by
the cases) and CHAOS_SEED (drawn, and printed) say how long and what. Last line `N passed, N failed`."""
import contextlib
import os
import random
import signal
import socket
import threading
import time

from cases import case, main
from cluster_harness import MODEL, free_port, long_text, story_of, worker
from serve_harness import Server, eventually

SECONDS = float(os.environ.get('CHAOS_SECONDS', '40')) / 2
SEED = int(os.environ.get('CHAOS_SEED', random.randrange(1 << 30)))


class Wire:
    """A network cable between the router and one worker: passes bytes, delays them, swallows them or is cut."""

    def __init__(self, port):
        self.port, self.delay, self.swallows, self.pairs = port, 0.0, False, []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(('127.0.0.1', self.port), timeout=2)
                    far.settimeout(None)
                except OSError:
                    near.close()
                    continue
                self.pairs.append((near, far))
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.delay:
                    time.sleep(self.delay)
                if not self.swallows:
                    target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for pair in self.pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self.pairs = []


class Chaos:
    """Does one thing after another to the workers; at least one is left alone."""

    def __init__(self, stack, roles, draw):
        self.stack, self.draw, self.done, self.roles = stack, draw, {}, roles
        self.workers = [stack.enter_context(worker('--role', role)) for role in roles]
        self.wires = [Wire(w.worker_port) for w in self.workers]

    def kill(self, i):
        port = self.workers[i].worker_port
        self.workers[i].process.kill()
        self.workers[i].process.wait()
        time.sleep(self.draw.uniform(0, 1))
        self.workers[i] = self.stack.enter_context(worker('--role', self.roles[i], port=port))

    def stop_for_a_while(self, i):
        self.workers[i].process.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.choice((0.3, 2.5, 6)))
        self.workers[i].process.send_signal(signal.SIGCONT)

    def cut(self, i):
        self.wires[i].cut()

    def slow(self, i):
        self.wires[i].delay = 0.05
        time.sleep(self.draw.uniform(0.5, 2))
        self.wires[i].delay = 0

    def swallow(self, i):
        self.wires[i].swallows = True
        time.sleep(self.draw.choice((1, 6)))
        self.wires[i].swallows = False
        self.wires[i].cut()  # what was swallowed never comes

    def run(self, until):
        while time.monotonic() < until:
            act = self.draw.choice((self.kill, self.stop_for_a_while, self.cut, self.cut, self.slow, self.swallow))
            act(self.draw.randrange(len(self.workers) - 1))
            self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
            time.sleep(self.draw.uniform(0.1, 0.6))


@case
def every_answer_ends_once_with_its_own_bytes():
    torment(('all', 'all', 'all'))


@case
def so_it_does_where_workers_have_roles():
    router = torment(('prefill', 'decode', 'prefill', 'decode'), behind=long_text('a tale', 60), least=4)
    assert router['handed'] > 0, router


def torment(roles, behind='', least=11):
    print(f'CHAOS_SEED={SEED} CHAOS_SECONDS={SECONDS}', flush=True)
    draw = random.Random(SEED)
    lengths = {seed: draw.choice((20, 120, 300)) for seed in range(12)}
    with Server(model=MODEL) as alone:
        expected = {seed: story_of(alone, seed, tokens, behind=f'{seed}. {behind}') for seed, tokens in lengths.items()}
    wrong, answered, refused = [], [], []
    with contextlib.ExitStack() as stack:
        chaos = Chaos(stack, roles, draw)
        router = stack.enter_context(Server('--workers', ','.join(wire.address for wire in chaos.wires), '--port', str(free_port()), model=MODEL, command='route'))
        eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'the router is not ready')
        until = time.monotonic() + SECONDS

        def client(number):
            mine = random.Random(SEED + number)
            while time.monotonic() < until and not wrong:
                seed = mine.choice(list(lengths))
                try:
                    got = story_of(router, seed, lengths[seed], behind=f'{seed}. {behind}')
                except AssertionError as refusal:
                    # Not accepted, with retry-after: a client asks again.
                    if 'no worker is ready' in str(refusal):
                        refused.append(seed)
                        time.sleep(0.5)
                        continue
                    got = repr(refusal)[:400]
                except Exception as problem:  # noqa: BLE001 - told below
                    got = repr(problem)[:400]
                answered.append(seed)
                if got != expected[seed]:
                    wrong.append((seed, lengths[seed], got, expected[seed]))
        clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for thread in clients:
            thread.start()
        chaos.run(until)
        for thread in clients:
            thread.join()
        moved = router.metric('deepinfer_router_moved_total')
        handed = router.metric('deepinfer_router_handed_total')
        print(f'{len(answered)} answers, {len(refused)} refused, {moved:.0f} moves, {handed:.0f} handed on, {chaos.done}', flush=True)
        assert not wrong, wrong[0]
        assert len(answered) >= least and moved > 0 and len(refused) < len(answered) / 4
        eventually(lambda: router.metric('deepinfer_router_requests') == 0, 'requests are left in the router')
        for one in chaos.workers:
            eventually(lambda one=one: one.metric('deepinfer_engine_running') + one.metric('deepinfer_engine_waiting') == 0, 'requests run on in a worker')
            eventually(lambda one=one: one.metric('deepinfer_engine_pages_leased') == 0, 'pages stay leased')
        return {'moved': moved, 'handed': handed}


main()
