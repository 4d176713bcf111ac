"""What tests/web_test.py stands on: cases, a browser window with its own storage, the runner."""
import argparse
import contextlib
import os
import re
import subprocess
import sys
import time

from playwright.sync_api import expect, sync_playwright

import web_mock

TESTS = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument('--url')
parser.add_argument('--program')
parser.add_argument('--shots')
parser.add_argument('only', nargs='*')
ARGS = parser.parse_args()
CASES = []
EXPECTED = re.compile('Failed to load resource|net::ERR_')  # what Chromium itself logs for a refused request


def case(function=None, **options):
    if function is None:
        return lambda f: case(f, **options)
    CASES.append((function, options))
    return function


class Desk:
    """One browser window with its own storage, and what it asked for and complained about."""

    def __init__(self, browser, mock, width=1100, height=760, dark=False, script=None, forgiving=False):
        self.mock, self.asked, self.errors, self.forgiving = mock, [], [], forgiving
        self.url = ARGS.url or mock.url
        self.context = browser.new_context(viewport={'width': width, 'height': height}, color_scheme='dark' if dark else 'light',
                                           permissions=['clipboard-read', 'clipboard-write'])
        self.context.set_default_timeout(20000)
        if script:
            self.context.add_init_script(script)
        self.page = self.open()

    def open(self):
        page = self.context.new_page()
        page.on('request', lambda request: self.asked.append(request.url))
        page.on('pageerror', lambda error: self.errors.append(str(error)))
        page.on('console', lambda line: line.type in ('error', 'warning') and not (self.forgiving and EXPECTED.search(line.text))
                and self.errors.append(line.text))
        page.goto(self.url)
        return page

    def close(self):
        self.context.close()
        outside = [url for url in self.asked if not url.startswith((self.url, 'data:', 'blob:'))]
        assert not outside, f'requests to other places: {outside[:3]}'
        assert not self.errors, f'errors in the console: {self.errors[:3]}'

    def say(self, text):
        self.page.fill('#prompt', text)
        self.page.press('#prompt', 'Enter')

    def ask(self, text):
        """Says it, waits for the end of the answer, returns the answer's element."""
        before = self.page.locator('.answer').count()
        self.say(text)
        expect(self.page.locator('.answer')).to_have_count(before + 1)
        answer = self.page.locator('.answer').last
        expect(answer).to_have_attribute('aria-busy', 'false', timeout=60000)
        return answer

    def set(self, **values):
        self.page.click('#open-settings')
        for name, value in values.items():
            self.page.fill('#s-' + name, value)
        self.page.keyboard.press('Escape')

    def stored(self, area='localStorage'):
        return self.page.evaluate(f'Object.fromEntries(Object.entries({area}))')


def probe(name):
    """A function to run in the page."""
    with open(os.path.join(TESTS, name + '.js'), encoding='utf-8') as file:
        return re.sub(r'^(//.*\n)+', '', file.read())


def wait_until(condition, what, seconds=10):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, 'waited in vain for ' + what
        time.sleep(0.02)


def take_pictures(browser, mock):
    """The pictures in docs/images, in few colours so that they stay small."""
    from PIL import Image
    for name, dark, width, height in (('chat-light', False, 1180, 800), ('chat-dark', True, 1180, 800), ('chat-narrow', False, 360, 720)):
        mock.pace = 0.02
        desk = Desk(browser, mock, width=width, height=height, dark=dark, forgiving=True)
        desk.ask('What is a ring buffer, and what does it cost?')
        if dark:
            desk.page.locator('.think summary').click()
            desk.page.mouse.move(5, 400)
            desk.page.evaluate("document.getElementById('log').scrollTop = 0")
        path = os.path.join(ARGS.shots, name + '.png')
        desk.page.wait_for_timeout(300)
        desk.page.screenshot(path=path)
        Image.open(path).convert('RGB').quantize(255, dither=Image.Dither.NONE).save(path, optimize=True)
        desk.context.close()


@contextlib.contextmanager
def served():
    """Runs ARGS.program, if there is one, and makes its address the one to test."""
    if not ARGS.program:
        yield
        return
    with subprocess.Popen([ARGS.program, 'serve', '--port', '0', '--access-log', '', '--store', 'off'], stdout=subprocess.PIPE, text=True) as process:
        try:
            ARGS.url = re.search(r'http://[^\s/]+', process.stdout.readline()).group(0)
            yield
        finally:
            process.terminate()


def main():
    passed = failed = 0
    with served(), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path='/usr/bin/chromium', args=['--no-sandbox', '--disable-dev-shm-usage'])
        if ARGS.shots:
            take_pictures(browser, web_mock.Mock())
            return
        for function, options in CASES:
            options = dict(options)
            if (ARGS.only and function.__name__ not in ARGS.only) or (ARGS.url and not options.pop('real', False)):
                continue
            options.pop('real', None)
            mock = web_mock.Mock()
            mock.key = options.pop('key', None)
            options.setdefault('forgiving', 'width' in options)
            try:
                desk = Desk(browser, mock, **options)
                try:
                    function(desk)
                except BaseException:
                    desk.context.close()
                    raise
                desk.close()
                passed += 1
            except Exception as problem:  # noqa: BLE001 - whatever happens is a failed case
                failed += 1
                print(f'FAILED {function.__name__}: {type(problem).__name__}: {str(problem)[:1500]}')
            finally:
                mock.stop()
        browser.close()
    print(f'{passed} passed, {failed} failed')
    sys.exit(1 if failed else 0)
