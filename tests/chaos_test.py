#!/usr/bin/env python3
"""tests/chaos_test.py PROGRAM [CASE...]: clusters while everything happens to them. CHAOS_SECONDS (40, shared by
the cases) and CHAOS_SEED (drawn, and printed) say how long and what. Last line `N passed, N failed`."""
import base64
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

from cases import LeftOut, case, main
from cluster_harness import MODEL, Etcd, free_port, long_text, worker
from serve_harness import Server, chat_body, events, eventually, has, path, picture

SHARE = float(os.environ.get('CHAOS_SECONDS', '40')) / 4
SEED = int(os.environ.get('CHAOS_SEED', random.randrange(1 << 30)))
CLIENTS = 6


class Wire:
    """A network cable to one port: passes bytes, delays and throttles them, swallows them, is cut or stays so."""

    def __init__(self, to, at=('127.0.0.1', 0)):
        self.to, self.pairs = to, []
        self.restore()
        self.listener = socket.create_server(at)
        self.address = '%s:%d' % self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def restore(self):
        self.delay, self.swallows, self.is_down = 0.0, False, False

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    assert not self.is_down
                    far = socket.create_connection(('127.0.0.1', self.to), timeout=2)
                    far.settimeout(None)
                except (OSError, AssertionError):
                    near.close()
                    continue
                self.pairs.append((near, far))
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.delay:  # and a megabyte a second
                    time.sleep(self.delay + len(data) / 1e6)
                if not self.swallows:
                    target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


class Chaos:
    """Does one thing after another to workers; the last one is left alone, but not what others send it."""

    def __init__(self, stack, roles, draw):
        self.stack, self.draw, self.done, self.roles = stack, draw, {}, roles
        self.workers, self.moved = [None] * len(roles), 0  # as routers that are gone have told
        self.acts = [self.kill, self.stop_for_a_while]

    def start(self, i, port, *flags, **more):
        self.workers[i] = self.stack.enter_context(worker('--role', self.roles[i], *flags, port=port, **more))

    def victim(self):
        return self.draw.randrange(len(self.workers) - 1)

    def kill(self):
        i = self.victim()
        self.workers[i].process.kill()
        self.workers[i].process.wait()
        time.sleep(self.draw.uniform(0, 1))
        self.restart(i)

    def restart(self, i):
        self.start(i, self.workers[i].worker_port)

    def stop_for_a_while(self):
        process = self.workers[self.victim()].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.choice((0.3, 2.5, 6)))
        process.send_signal(signal.SIGCONT)

    def run(self, until):
        deck = []
        while time.monotonic() < until:
            if not deck:
                deck = self.draw.sample(self.acts[1:], len(self.acts) - 1) + [self.acts[0]]
            act = deck.pop()
            act()
            self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
            time.sleep(self.draw.uniform(0.1, 0.6))


class WiredChaos(Chaos):
    """Each worker has two cables, from the router and from other workers' pages, at an address of its own."""

    def __init__(self, stack, roles, draw):
        super().__init__(stack, roles, draw)
        self.links, self.pages = [], []
        for i in range(len(roles)):
            page_port = free_port()
            self.start(i, None, '--page-port', str(page_port))
            self.links.append(Wire(self.workers[i].worker_port, (f'127.0.1.{i + 1}', 0)))
            self.pages.append(Wire(page_port, (f'127.0.1.{i + 1}', page_port)))
        self.addresses = [wire.address for wire in self.links]
        self.acts += [self.cut, self.slow, self.swallow]
        if 'prefill' in roles:
            self.acts += [self.cut_pages, self.slow_pages, self.swallow_pages, self.no_pages]

    def restart(self, i):
        self.start(i, self.workers[i].worker_port, '--page-port', str(self.pages[i].to))

    def cut(self):
        self.links[self.victim()].cut()

    def slow(self):
        self.slow_one(self.links[self.victim()])

    def swallow(self):
        self.swallow_one(self.links[self.victim()])

    def cut_pages(self):
        for _ in range(6):
            self.receiver().cut()
            time.sleep(self.draw.uniform(0.05, 0.3))

    def slow_pages(self):
        self.slow_one(self.receiver())

    def swallow_pages(self):
        self.swallow_one(self.receiver())

    def no_pages(self):
        wire = self.receiver()
        wire.is_down = True
        wire.cut()
        time.sleep(self.draw.uniform(1, 3))
        wire.restore()

    def receiver(self):
        return self.pages[self.draw.choice([i for i, role in enumerate(self.roles) if role == 'decode'])]

    def slow_one(self, wire):
        wire.delay = 0.05
        time.sleep(self.draw.uniform(0.5, 2))
        wire.restore()

    def swallow_one(self, wire):
        wire.swallows = True
        time.sleep(self.draw.choice((1, 6)))
        wire.restore()
        wire.cut()  # what was swallowed never comes


def ip(*words, within=None):
    subprocess.run(['ip', *(['-n', within] if within else []), *words], check=True, capture_output=True)


class NamespaceChaos(Chaos):
    """Each worker has a network of its own: what is lost there nobody is told of."""

    def __init__(self, stack, roles, draw):
        super().__init__(stack, roles, draw)
        tag = f'{os.getpid() % 10000}'
        self.net, self.names = f'10.213.{os.getpid() % 250}.', [f'di{tag}-{i}' for i in range(len(roles))]
        try:
            ip('link', 'add', f'dibr{tag}', 'type', 'bridge')
        except (OSError, subprocess.CalledProcessError) as why:
            raise LeftOut(f'no network namespaces here: {getattr(why, "stderr", why)}') from None
        stack.callback(ip, 'link', 'del', f'dibr{tag}')
        ip('addr', 'add', self.net + '1/24', 'dev', f'dibr{tag}')
        ip('link', 'set', f'dibr{tag}', 'up')
        with open(path('chaos-secret'), 'w') as file:
            file.write('of this test\n')
        self.secret = ('--cluster-secret', path('chaos-secret'))
        for i, name in enumerate(self.names):
            ip('netns', 'add', name)
            stack.callback(ip, 'netns', 'del', name)
            ip('link', 'add', f'{name}v', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name)
            ip('link', 'set', f'{name}v', 'master', f'dibr{tag}', 'up')
            ip('addr', 'add', f'{self.net}{i + 2}/24', 'dev', 'eth0', within=name)
            for device in ('lo', 'eth0'):
                ip('link', 'set', device, 'up', within=name)
            self.restart(i)
        self.addresses = [f'{self.net}{i + 2}:8101' for i in range(len(roles))]
        self.acts += [self.lose_the_router, self.lose_each_other, self.lose_each_other, self.narrow]

    def restart(self, i):
        address = f'{self.net}{i + 2}'
        self.start(i, 8101, *self.secret, '--worker-host', address, '--host', address, within=('ip', 'netns', 'exec', self.names[i]))

    def lose(self, i, address):
        route = ('blackhole', f'{address}/32')
        ip('route', 'add', *route, within=self.names[i])
        time.sleep(self.draw.choice((1, 3, 6)))
        ip('route', 'del', *route, within=self.names[i])

    def lose_the_router(self):
        self.lose(self.victim(), self.net + '1')

    def lose_each_other(self):
        one, other = self.draw.sample(range(len(self.names)), 2)
        self.lose(one, f'{self.net}{other + 2}')

    def narrow(self):
        name = self.names[self.victim()]
        subprocess.run(['tc', '-n', name, 'qdisc', 'add', 'dev', 'eth0', 'root', 'tbf', 'rate', '2mbit', 'burst', '16kbit', 'latency', '200ms'], capture_output=True)
        time.sleep(self.draw.uniform(1, 3))
        subprocess.run(['tc', '-n', name, 'qdisc', 'del', 'dev', 'eth0', 'root'], capture_output=True)


class MemberChaos(Chaos):
    """What workers and routers lean on goes and comes back: etcd, the store they share, a router."""

    def __init__(self, stack, roles, draw):
        super().__init__(stack, roles, draw)
        self.etcd = stack.enter_context(Etcd())
        self.store = path(f'chaos-store-{time.monotonic_ns()}')
        self.flags = ('--etcd', self.etcd.url, '--cluster', 'test')
        for i in range(len(roles)):
            self.start(i, None, *self.flags, store=self.store)
        self.routers = [None, None]
        for k in range(2):
            self.start_router(k, free_port())
        self.acts += [self.kill_router, self.lose_etcd, self.lose_the_store, self.empty_the_store]

    def restart(self, i):
        self.start(i, self.workers[i].worker_port, *self.flags, store=self.store)

    def start_router(self, k, port):
        self.routers[k] = self.stack.enter_context(Server(*self.flags, '--port', str(port), model=MODEL, command='route'))
        is_ready(self.routers[k])

    def kill_router(self):
        k = self.draw.randrange(2)
        self.moved += self.routers[k].metric('deepinfer_router_moved_total')
        self.routers[k].process.kill()
        self.routers[k].process.wait()
        self.start_router(k, self.routers[k].port)

    def lose_etcd(self):
        self.etcd.kill(forget=self.draw.random() < 0.5)
        time.sleep(self.draw.uniform(0.5, 3))
        self.etcd.start()

    def lose_the_store(self):
        os.rename(self.store, self.store + '-away')
        with open(self.store, 'w'):  # a file in its place: nobody writes there, root neither
            time.sleep(self.draw.uniform(0.5, 3))
        os.remove(self.store)
        os.rename(self.store + '-away', self.store)

    def empty_the_store(self):
        shutil.rmtree(self.store, ignore_errors=True)
        os.makedirs(self.store, exist_ok=True)


def is_ready(router):
    eventually(lambda: router.ask('GET', '/health/ready')[0] == 200, 'the router is not ready', 30)


class Question:
    """What clients ask: a story, long or short, some of them about a picture."""

    def __init__(self, seed, tokens, behind, with_picture):
        text = f'{seed}. {behind}Tell a long story about {seed} foxes.'
        drawn = 'data:image/png;base64,' + base64.b64encode(picture(color=(20 * seed, 99, 200))).decode()
        content = [{'type': 'text', 'text': text}, {'type': 'image_url', 'image_url': {'url': drawn}}] if with_picture else text
        self.body = json.dumps(chat_body(content, seed=seed, temperature=1.0, max_tokens=tokens, stream=True))

    def ask(self, server):
        """(answer, finish reasons, whole): not whole where the connection broke. None: refused for now."""
        connection = http.client.HTTPConnection('127.0.0.1', server.port, timeout=120)
        data = b''
        try:
            connection.request('POST', '/v1/chat/completions', self.body, {'content-type': 'application/json'})
            response = connection.getresponse()
            while piece := response.read1():
                data += piece
        except (ConnectionError, http.client.HTTPException):
            if not data:
                return None
            data = data[:data.rfind(b'\n\n') + 2]
            response.broke = True
        finally:
            connection.close()
        if response.status in (429, 503) and response.getheader('retry-after'):
            return None
        told = data.decode()
        assert response.status == 200 and 'error' not in told, (response.status, told[-500:])
        whole = not hasattr(response, 'broke')
        assert told.count('[DONE]') == 1 or not whole, told[-500:]
        choices = [choice for event in events(data) for choice in event.get('choices', [])]
        finishes = [choice['finish_reason'] for choice in choices if choice.get('finish_reason')]
        return ''.join(choice['delta'].get('content') or '' for choice in choices), finishes, whole


@case
def every_answer_ends_once_with_its_own_bytes():
    torment(WiredChaos, ('all', 'all', 'all'))


@case
def so_it_does_where_workers_have_roles():
    told = torment(WiredChaos, ('encode', 'prefill', 'decode', 'prefill', 'decode'), behind=long_text('a tale', 60), pictures=True)
    assert told['handed'] > 0, told


@case
def so_it_does_where_packets_go_nowhere():
    if not has('ip') or os.geteuid() != 0:
        raise LeftOut('network namespaces take ip and root')
    told = torment(NamespaceChaos, ('prefill', 'decode', 'prefill', 'decode'), behind=long_text('a tale', 60))
    assert told['handed'] > 0, told


@case
def so_it_does_when_what_it_leans_on_goes():
    torment(MemberChaos, ('all', 'all', 'all'), behind=long_text('a tale', 20))


def hurt(chaos):
    told = {name: sum(router.metric(f'deepinfer_router_{name}_total') for router in chaos.routers) for name in ('moved', 'handed')}
    told['moved'] += chaos.moved
    lost = {name: sum(one.metric(f'deepinfer_hand_over_{name}_total') for one in chaos.workers) for name in ('retried', 'lost', 'late')}
    return told['moved'] + sum(lost.values()), told, lost


def torment(kind, roles, behind='', pictures=False):
    print(f'CHAOS_SEED={SEED} CHAOS_SECONDS={4 * SHARE}', flush=True)
    draw = random.Random(SEED)
    questions = [Question(seed, draw.choice((20, 120, 300)), behind, pictures and seed % 3 == 0) for seed in range(12)]
    with Server(model=MODEL) as alone:
        expected = [question.ask(alone) for question in questions]
    wrong, answered, refused, broken = [], [], [], []
    with contextlib.ExitStack() as stack:
        chaos = kind(stack, roles, draw)
        if kind is not MemberChaos:
            secret = getattr(chaos, 'secret', ())
            chaos.routers = [stack.enter_context(Server('--workers', ','.join(chaos.addresses), *secret, '--port', str(free_port()), model=MODEL, command='route'))]
            is_ready(chaos.routers[0])
        over = threading.Event()

        def client(number):
            mine, k = random.Random(SEED + number), number
            while not over.is_set() and not wrong:
                which = mine.randrange(len(questions))
                try:
                    got = questions[which].ask(chaos.routers[k % len(chaos.routers)])
                except Exception as problem:  # noqa: BLE001 - told below
                    wrong.append((which, repr(problem)[:900]))
                    return
                if got is None:  # not accepted, to be asked again; elsewhere if there is
                    refused.append(which)
                    k += 1
                    time.sleep(0.5)
                elif not got[2]:  # its router died: what came is where the answer begins, and the other router has it all
                    broken.append(which)
                    k += 1
                    if len(chaos.routers) == 1 or not expected[which][0].startswith(got[0]):
                        wrong.append((which, got, expected[which]))
                else:
                    answered.append(which)
                    if got != expected[which]:
                        wrong.append((which, got, expected[which]))
        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in clients:
            thread.start()
        # Answers are short: nobody may have been inside of those that were hit.
        for _ in range(4):
            chaos.run(time.monotonic() + SHARE)
            if wrong or broken or chaos.moved or hurt(chaos)[0] > 0:
                break
        over.set()
        for thread in clients:
            thread.join()
        _, told, lost = hurt(chaos)
        print(f'{len(answered)} answers, {len(refused)} refused, {len(broken)} broken, {told}, {lost}, {chaos.done}', flush=True)
        assert not wrong, wrong[0]
        assert len(answered) >= 4 and told['moved'] + sum(lost.values()) + len(broken) > 0 and len(refused) < 4 + len(answered) / 2
        # Whatever happens moves those that are inside, some once more where they went; nobody goes round and round.
        assert told['moved'] <= 2 * CLIENTS * (1 + sum(chaos.done.values())), told
        for router in chaos.routers:
            eventually(lambda router=router: router.metric('deepinfer_router_requests') == 0, 'requests are left in a router')
        for one in chaos.workers:
            eventually(lambda one=one: one.metric('deepinfer_engine_running') + one.metric('deepinfer_engine_waiting') == 0, 'requests run on in a worker')
            eventually(lambda one=one: one.metric('deepinfer_engine_pages_leased') == 0, 'pages stay leased')
        return told


main()
