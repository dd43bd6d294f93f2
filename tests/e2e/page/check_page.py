#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The web page in Chromium, by chromedriver: check_page.py BUILD [FOLDER FOR PICTURES]

Types, streams, stops, edits, answers again, reloads, shows reasoning and a tool call, watches the
charts, looks at phone width and dark colours, has two tabs, loses the server in the middle of an
answer and meets another model behind it, and wants no console error but those. Needs chromium and
chromedriver (Debian: chromium chromium-driver); without them it is skipped (77).
"""
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

BUILD = sys.argv[1]
OTHER = BUILD + '/tests/tiny/smollm.gguf'
SHOTS = sys.argv[2] if len(sys.argv) > 2 else None
ELEMENT = 'element-6066-11e4-a52e-4f735466cecf'
WEATHER = [{'type': 'function', 'function': {
    'name': 'get_weather', 'description': 'Get the current weather in a city', 'parameters': {
    'type': 'object', 'properties': {'city': {'type': 'string', 'description': 'The city'}},
    'required': ['city']}}}]
bad = 0


def check(name, ok, *what):
    global bad
    if not ok:
        bad += 1
    print('ok    ' if ok else 'FAILED', name, *(() if ok else what), flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Browser:
    def __init__(self, profile):
        self.port = free_port()
        self.driver = subprocess.Popen(['chromedriver', f'--port={self.port}'],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f'http://127.0.0.1:{self.port}'
        self.until(lambda: self.raw('GET', '/status')['ready'], 20)
        args = ['--headless=new', '--no-sandbox', '--disable-gpu',
                '--disable-dev-shm-usage', f'--user-data-dir={profile}', '--window-size=1100,800']
        v = self.raw('POST', '/session', {'capabilities': {'alwaysMatch': {
            'browserName': 'chrome', 'goog:chromeOptions': {'args': args},
            'goog:loggingPrefs': {'browser': 'ALL'}}}})
        self.base += '/session/' + v['sessionId']

    def raw(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        r = urllib.request.Request(self.base + path,
                                   data, {'Content-Type': 'application/json'}, method=method)
        with urllib.request.urlopen(r, timeout=60) as f:
            return json.loads(f.read())['value']

    def until(self, f, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                v = f()
                if v:
                    return v
            except OSError:
                pass
            time.sleep(0.05)
        return None

    def js(self, script, *args):
        return self.raw('POST', '/execute/sync', {'script': script, 'args': list(args)})

    def find(self, css):
        return self.raw('POST', '/element', {'using': 'css selector', 'value': css})[ELEMENT]

    def click(self, css):
        self.raw('POST', f'/element/{self.find(css)}/click', {})

    def keys(self, css, text):
        self.raw('POST', f'/element/{self.find(css)}/value', {'text': text})

    def set(self, css, value):
        self.js("const e = document.querySelector(arguments[0]); e.value = arguments[1]; "
                "e.dispatchEvent(new Event('change', {bubbles: true}))", css, value)

    def shot(self, name):
        if SHOTS:
            with open(os.path.join(SHOTS, name + '.png'), 'wb') as f:
                f.write(base64.b64decode(self.raw('GET', '/screenshot')))

    def size(self, w, h):
        self.raw('POST', '/window/rect', {'width': w, 'height': h})

    def close(self):
        try:
            self.raw('DELETE', '')
        finally:
            self.driver.terminate()
            self.driver.wait()


ANSWERED = ("return !document.querySelector('article.busy') && "
            "document.querySelector('#stop').hidden")
LAST = "return [...document.querySelectorAll('article.assistant .body')].at(-1)?.textContent ?? ''"

KEEP = """const real = window.fetch;
window.fetch = async (...a) => {
  const r = await real(...a), [one, two] = r.body.tee();
  new Response(two).text().then(t => { if (t.includes('[DONE]')) window.kept = t; });
  return new Response(one, r);
};"""


# Answers that do not end by themselves and come in pieces of 400 bytes, one in window.piece ms:
# however fast the machine is, there is a middle to act in.
LONG = """const real = window.fetch;
window.piece = 20;
window.fetch = async (u, o) => {
  if (!o?.body) return real(u, o);
  const r = await real(u, {...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true})});
  const slow = new TransformStream({async transform(chunk, to) {
    for (let k = 0; k < chunk.length; k += 400) {
      if (window.piece) await new Promise((then) => setTimeout(then, window.piece));
      to.enqueue(chunk.subarray(k, k + 400));
    }
  }});
  return new Response(r.body.pipeThrough(slow), r);
};"""
GROWN = "return document.querySelector('article.busy .body')?.textContent.length ?? 0"
REGENERATE = ("return [...document.querySelectorAll('#log > :last-child .foot "
              "button')].at(-1)?.textContent")


def ask(b, text):
    b.keys('#input', text + '\ue007')
    b.until(lambda: b.js(ANSWERED))
    return b.js(LAST)


def chat(b):
    check('model named', b.until(lambda: b.js("return document.querySelector('#model').textContent "
                                              "&& !document.querySelector('#model.error')")))
    check('input has the focus', b.js("return document.activeElement.id") == 'input')
    b.js(KEEP)
    a = ask(b, 'What is the capital of Portugal?')
    check('answer', 'Lisbon' in a, a,
          b.js("return document.querySelector('article.user .body').textContent"))
    foot = b.js("return document.querySelector('article.assistant .foot').textContent")
    check('figures under the answer', 'tokens' in foot and 'tok/s' in foot, foot)
    # tokens that came together tell the page no speed
    tps = re.search(r'"decode_tps":([\d.]+)', b.until(lambda: b.js('return window.kept')))
    shown = re.search(r'([\d.]+) tok/s', foot)
    check('its speed is the server\'s',
          tps and shown and abs(float(shown[1]) - float(tps[1])) < 0.051, foot, tps and tps[1])
    b.shot('chat')
    b.raw('POST', '/refresh', {})
    check('reload keeps the conversation', b.until(lambda: 'Lisbon' in b.js(LAST)))
    b.click('article.assistant:last-child .foot button:last-child')
    b.until(lambda: b.js(ANSWERED))
    check('answer again', b.js("return document.querySelectorAll('article').length") == 2
          and 'Lisbon' in b.js(LAST))
    b.click('article.user .foot button')
    check('edit box', b.js("return document.querySelector('article.user textarea')?.value")
          == 'What is the capital of Portugal?')
    b.js("document.querySelector('article.user textarea').value = ''")
    b.keys('article.user textarea', 'What is the capital of France?\ue007')
    b.until(lambda: b.js(ANSWERED) and 'Paris' in b.js(LAST))
    check('edited', 'Paris' in b.js(LAST)
          and b.js("return document.querySelectorAll('article').length") == 2, b.js(LAST))


def stop(b):
    """Wild text is stopped by Escape and by the button."""
    b.js("document.querySelector('#settings').open = true")
    b.set('#temperature', '2')
    b.js("document.querySelector('#settings').open = false")
    b.js(LONG)
    for how in ('Escape', 'button'):
        b.click('#fresh')
        b.keys('#input', 'Tell me a very long story about everything.\ue007')
        n = b.until(lambda: b.js(GROWN))
        check('streams', n and b.until(lambda: b.js(GROWN) > n), n)
        check('is under way', b.js("return !!document.querySelector('article.busy')"))
        if how == 'Escape':
            b.keys('#input', '\ue00c')
        else:
            b.click('#stop')
        b.until(lambda: b.js(ANSWERED))
        foot = b.js("return document.querySelector('article.assistant .foot').textContent")
        check('stops by ' + how, 'stopped' in foot, foot)
    b.set('#temperature', '0')
    b.raw('POST', '/refresh', {})
    b.until(lambda: b.js("return !!document.querySelector('article')"))
    b.click('#fresh')


def middle(b, fresh=True):
    """An answer that is under way: there are some letters of it."""
    b.js(LONG)
    if fresh:
        b.click('#fresh')
    b.keys('#input', 'Tell me a very long story about everything.\ue007')
    return b.until(lambda: b.js(GROWN) > 40)


def leave(b, url):
    """Reloads in the middle, and other tabs."""
    check('an answer under way', middle(b))
    b.raw('POST', '/refresh', {})
    check('reload keeps what there was', b.until(lambda: len(b.js(LAST)) > 40),
          b.js("return document.querySelector('#log').textContent"))
    check('and says that it stopped',
          'stopped' in b.js("return document.querySelector('article.assistant .foot').textContent"))
    b.js("for (const s of [localStorage, sessionStorage]) s.setItem('sluice.chat', "
         "JSON.stringify([{role: 'user', content: 'What is the capital of France?'}]))")
    b.raw('POST', '/refresh', {})
    b.until(lambda: b.js("return !!document.querySelector('article')"))
    check('a question without answer can be asked again',
          b.js(REGENERATE) == 'Regenerate', b.js(REGENERATE))
    b.click('#log > :last-child .foot button:last-child')
    b.until(lambda: b.js(ANSWERED) and b.js(LAST))
    check('and is answered', 'Paris' in b.js(LAST), b.js(LAST))
    one = b.raw('GET', '/window')
    b.raw('POST', '/window', {'handle': b.raw('POST', '/window/new', {'type': 'tab'})['handle']})
    b.raw('POST', '/url', {'url': url})
    check('a new tab has the newest conversation', b.until(lambda: 'Paris' in b.js(LAST)))
    b.click('#fresh')
    check('it has another of its own', 'Madrid' in ask(b, 'What is the capital of Spain?'),
          b.js(LAST))
    b.raw('DELETE', '/window')
    b.raw('POST', '/window', {'handle': one})
    b.raw('POST', '/refresh', {})
    check('a tab keeps its conversation', b.until(lambda: 'Paris' in b.js(LAST), 3), b.js(LAST))
    b.js("sessionStorage.setItem('sluice.chat', JSON.stringify([{role: 'user', content: 'Hi'}, "
         "{role: 'assistant'}, null, 7]))")
    b.raw('POST', '/refresh', {})
    check('odd contents of the storage do no harm',
          b.until(lambda: b.js("return document.querySelector('#model').textContent"), 3))
    b.click('#fresh')


def controls(b):
    b.js("document.querySelector('#settings').open = false")
    b.set('#temperature', '0.33')
    b.keys('#input', 'What is the capital of France?')
    b.click('#send')
    b.until(lambda: b.js("return document.querySelectorAll('article').length") == 2, 3)
    check('Send takes every number',
          b.js("return document.querySelectorAll('article').length") == 2)
    b.until(lambda: b.js(ANSWERED))
    b.set('#temperature', '2.5')
    b.click('#fresh')
    ask(b, 'Hi')
    check('the server says what is wrong with one',
          'temperature: 2.5' in b.js("return document.querySelector('#log').textContent"),
          b.js("return document.querySelector('#log').textContent"))
    b.set('#temperature', '0')
    b.click('#fresh')
    ask(b, 'What is the capital of France?')
    b.js("Object.defineProperty(navigator, 'clipboard', {value: undefined, configurable: true}); "
         "document.execCommand = (c) => { window.copied = c + ' ' + document.activeElement.value; "
         "}")
    b.click('article.assistant .foot button')
    check('copies without a clipboard', b.js('return window.copied') == 'copy ' + b.js(LAST),
          b.js('return window.copied'))
    b.click('#fresh')


def elsewhere(b):
    """Who reads further up or types elsewhere is left there when an answer ends."""
    for _ in range(7):
        ask(b, 'List three fruits.')
    b.js("document.querySelector('#settings').open = true")
    check('an answer under way', middle(b, False))
    b.js("document.querySelector('#log').scrollTop = 30; "
         "document.querySelector('#system').focus(); window.piece = 0")
    b.until(lambda: b.js(ANSWERED))
    check('stays where it was scrolled to', b.js("return document.querySelector('#log').scrollTop")
          == 30, b.js("return document.querySelector('#log').scrollTop"))
    check('leaves the focus', b.js('return document.activeElement.id') == 'system',
          b.js('return document.activeElement.id'))
    b.js("document.querySelector('#settings').open = false")


def gone(b, server):
    """The server is killed in the middle, and another model comes up in its place."""
    check('an answer under way', middle(b))
    server.stop(9)
    b.until(lambda: b.js(ANSWERED))
    foot = b.js("return document.querySelector('article.assistant .foot').textContent")
    check('the cut is told', 'The answer was cut off.' in foot and 'Regenerate' in foot, foot)
    check('what there was stays', len(b.js(LAST)) > 40)
    ask(b, 'Hi')
    foot = b.js("return [...document.querySelectorAll('article .foot')].at(-1).textContent")
    check('no server is told', 'The server can not be reached.' in foot, foot)
    other = Server(OTHER, server.port)
    try:
        b.js("window.fetch = new Proxy(window.fetch, {apply: (f, x, a) => f(a[0], a[1]?.body ? "
             "{...a[1], body: JSON.stringify({...JSON.parse(a[1].body), max_completion_tokens: "
             "4})} : a[1])})")
        name = "return document.querySelector('#model:not(.error)')?.textContent ?? ''"
        for _ in range(2):  # the first time the page asks the model that was
            b.click('#log > :last-child .foot button:last-child')
            b.until(lambda: b.js(ANSWERED) and b.js(name) not in ('', 'demo'), 5)
        foot = b.js("return [...document.querySelectorAll('article .foot')].at(-1).textContent")
        check('another model in its place is asked',
              'tokens' in foot and b.js(name) not in ('', 'demo'), foot, b.js(name))
    finally:
        check('the other ends well', other.stop() == 0)


def more(b):
    b.set('#reasoning', 'medium')
    a = ask(b, 'Tom has 12 apples and buys 7 more. How many apples does Tom have now?')
    check('reasoning folded', b.js("const d = document.querySelector('details.think'); return d && "
                                   "!d.open && d.textContent.length > 10"), a)
    b.shot('reasoning')
    b.set('#reasoning', '')
    b.click('#fresh')
    b.set('#tools', json.dumps(WEATHER))
    ask(b, 'What is the weather in Oslo?')
    call = b.js("return document.querySelector('.call')?.textContent ?? ''")
    check('tool call shown', 'get_weather' in call and 'Oslo' in call, call, b.js(LAST))
    if call:
        b.keys('.call textarea', '{"city": "Oslo", "temperature": 7, "condition": "cloudy"}')
        b.js("[...document.querySelectorAll('article button')].find((x) => x.textContent === 'Send "
             "results').click()")
        b.until(lambda: b.js(ANSWERED))
        check('goes on with the result', '7' in b.js(LAST), b.js(LAST))
    b.shot('tools')
    b.set('#tools', '{')
    b.keys('#input', 'x\ue007')
    check('bad tools are told', b.until(
        lambda: 'Tools' in b.js("return document.querySelector('#settings-error').textContent"), 3))
    b.set('#tools', '')
    b.js("document.querySelector('#settings').open = false")
    b.click('#fresh')
    html = ask(b, 'Say <img src=x onerror=alert(1)> **twice**')
    check('no HTML from text',
          b.js("return document.querySelectorAll('#log img').length") == 0 and html is not None)
    b.set('#system', 'Answer in JSON.')
    b.click('#fresh')
    a = ask(b, 'What is the capital of Canada?')
    check('system prompt', '{' in a and 'Ottawa' in a, a)
    b.set('#system', '')


def live(b):
    b.click('#tab-live')
    check('six charts, and the heat map of experts where there are some',
          b.js("return document.querySelectorAll('#charts figure').length") == 7)
    b.until(lambda: b.js("return document.querySelector('#chart-tps "
                         "path').getAttribute('d')?.includes('L')"), 6)
    b.js("fetch('v1/completions', {method: 'POST', headers: {'Content-Type': 'application/json'}, "
         "body: JSON.stringify({model: 'demo', prompt: 'x', max_tokens: 300, "
         "ignore_eos: true, temperature: 1})})")
    ok = b.until(lambda: b.js("return [...document.querySelectorAll('#charts figure')].filter((f) "
                              "=> /[1-9]/.test(f.querySelector('b').textContent)).length >= 2"), 8)
    check('charts move', ok, b.js("return document.querySelector('#charts').textContent"))
    check('no complaint', b.js("return document.querySelector('#live-state').textContent") == '')
    time.sleep(2)
    b.shot('live')
    b.click('#theme')
    one = b.js("return getComputedStyle(document.body).backgroundColor")
    b.shot('live-other-colours')
    b.click('#tab-chat')
    ask(b, 'List three fruits.')
    b.shot('chat-other-colours')
    b.click('#theme')
    check('two colour schemes',
          one != b.js("return getComputedStyle(document.body).backgroundColor"))


def phone(b):
    b.size(390, 800)
    for tab in ('chat', 'live'):
        b.click('#tab-' + tab)
        wide = b.js("return document.documentElement.scrollWidth - "
                    "document.documentElement.clientWidth")
        check('phone width, ' + tab, wide <= 0, wide)
        time.sleep(0.3)
        b.shot('phone-' + tab)
    b.click('#tab-chat')
    b.js("document.querySelector('#settings').open = true")
    check('phone width, settings', b.js("return document.documentElement.scrollWidth - "
                                        "document.documentElement.clientWidth") <= 0)
    b.shot('phone-settings')


class Server:
    def __init__(self, model, port=0):
        self.p = subprocess.Popen([BUILD + '/sluice', 'serve', '-m', model, '--port',
                                   str(port), '--log-json'], stderr=subprocess.PIPE, text=True)
        self.port = next((json.loads(x)['port'] for x in self.p.stderr
                          if x.startswith('{') and json.loads(x).get('event') == 'listening'), None)
        threading.Thread(target=lambda: [None for _ in self.p.stderr], daemon=True).start()

    def stop(self, how=15):
        self.p.send_signal(how)
        return self.p.wait(20)


def main():
    if not shutil.which('chromedriver') or not (shutil.which('chromium')
                                                or shutil.which('google-chrome')):
        print('no chromium with chromedriver here')
        return 77
    with tempfile.TemporaryDirectory() as tmp:
        server = Server('demo')
        if not server.port:
            print('the server does not start')
            return 1
        url = f'http://127.0.0.1:{server.port}/'
        b = Browser(os.path.join(tmp, 'profile'))
        try:
            b.raw('POST', '/url', {'url': url})
            chat(b)
            stop(b)
            more(b)
            live(b)
            phone(b)
            leave(b, url)
            log = [e for e in b.raw('POST', '/se/log', {'type': 'browser'})
                   if e['level'] in ('SEVERE', 'WARNING')]
            check('no console error', not log, log)
            controls(b)
            elsewhere(b)
            gone(b, server)
            log = [e for e in b.raw('POST', '/se/log', {'type': 'browser'}) if e[
                'level'] in ('SEVERE', 'WARNING') and 'Failed to load resource' not in e['message']]
            check('no console error but of requests', not log, log)
        finally:
            b.close()
            if server.p.poll() is None:
                check('server ends well', server.stop() == 0)
    print('%d bad' % bad)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
