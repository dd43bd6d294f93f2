#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice load against a server of known speed: check_load.py BUILD

The server answers with a fixed time to the first token and a fixed time per token, counts words as
tokens (3 around each prompt), remembers how many requests were open at once, and fails on demand.
What load reports must be what the server did.
"""
import http.server
import json
import os
import re
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BUILD = sys.argv[1]
bad = 0


class Fake(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.lock = threading.Condition()
        self.open = 0
        self.reset()

    def reset(self, ttft=0.03, tpot=0.005, fail=lambda i: None,
              slow=0.0, cut=False, multi=1, name='content', torn=0):
        with self.lock:
            # The last answer may have reached its client before its thread counted itself out.
            assert self.lock.wait_for(lambda: self.open == 0, 30), 'a request that does not end'
        self.name, self.twice, self.torn = name, [], torn
        self.ttft, self.tpot, self.fail, self.slow, self.cut, self.multi = (
            ttft, tpot, fail, slow, cut, multi)
        self.peak = self.n = 0
        self.bodies, self.times, self.keys = [], [], []
        self.took = []

    def middle(self, i):
        """Median in ms of what answers took by this end's clock: to the first piece, in all, from
        piece to piece."""
        return 1e3 * statistics.median(t[i] for t in self.took)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, *a):
        pass

    def chunk(self, obj):
        data = obj if isinstance(obj, bytes) else b'data: ' + json.dumps(obj).encode() + b'\n\n'
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
        self.wfile.flush()

    def whole(self, status, obj):
        data = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        s = self.server
        def once(pairs):
            s.twice.extend({k for k, _ in pairs if sum(k == q for q, _ in pairs) > 1})
            return dict(pairs)
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])),
                          object_pairs_hook=once)
        with s.lock:
            i, s.n = s.n, s.n + 1
            s.open += 1
            s.peak = max(s.peak, s.open)
            opened = s.open
            s.bodies.append(body)
            s.times.append(time.monotonic())
            s.keys.append(self.headers.get('Authorization'))
        try:
            self.answer(s, i, body, opened)
        finally:
            with s.lock:
                s.open -= 1
                s.lock.notify_all()

    def answer(self, s, i, body, opened):
        why = s.fail(i)
        if why:
            return self.whole(why, {'error': {'message': 'made to fail',
                                              'type': 'x', 'param': None, 'code': None}})
        chat = 'messages' in body
        text = body['messages'][-1]['content'] if chat else body['prompt']
        n = body.get('max_tokens', 5)
        usage = {'prompt_tokens': len(text if isinstance(text, list) else text.split()) + 3,
                 'completion_tokens': n, 'prompt_tokens_details': {'cached_tokens': 2}}
        begun = time.monotonic()
        time.sleep(s.ttft + s.slow * opened)
        first = time.monotonic()
        if not body.get('stream'):
            time.sleep(s.tpot * (n - 1))
            s.took.append([time.monotonic() - begun] * 2)
            key = {'message': {'role': 'assistant',
                               'content': 'w ' * n}} if chat else {'text': 'w ' * n}
            return self.whole(200, {'choices': [dict(index=0, **key)], 'usage': usage})
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.chunk(b': prefill 50 %\n\n')
        if chat:
            self.chunk({'choices': [{'index': 0, 'delta': {'role': 'assistant', 'content': ''}}]})
        if s.torn:
            text = b''.join(b'data: ' + json.dumps({'choices': [
                {'index': 0, 'delta': {'content': 'w '}}]}).encode() + b'\n\n' for _ in range(n))
            for k in range(0, len(text), s.torn):
                self.chunk(text[k:k + s.torn])
                time.sleep(s.tpot)
        for k in range(0, 0 if s.torn else n, s.multi):
            if k:
                time.sleep(s.tpot * s.multi)
            if s.cut and k > n // 2:
                self.close_connection = True
                return
            piece = {'delta': {s.name: 'w '}} if chat else {'text': 'w '}
            self.chunk({'choices': [dict(index=0, **piece)], 'usage': None})
        end = time.monotonic()
        s.took.append((first - begun, end - begun, (end - first) / max(n - 1, 1)))
        self.chunk({'choices': [], 'usage': usage})
        self.chunk(b'data: [DONE]\n\n')
        self.wfile.write(b'0\r\n\r\n')


def check(name, ok, *what):
    global bad
    if not ok:
        bad += 1
        print('FAILED:', name, *what)


def load(server, *args, url=None, expect=0):
    url = url or 'http://127.0.0.1:%d' % server.server_address[1]
    p = subprocess.run([BUILD + '/sluice', 'load',
                        '--url', url, '--model', 'm', '--json', '-', '-q', *args],
                       capture_output=True, text=True, timeout=60)
    check('exit code of ' + ' '.join(args), p.returncode == expect, p.returncode, p.stderr)
    return (json.loads(p.stdout)['levels'] if p.stdout else []), p.stderr


def near(v, want, over):
    return want * 0.98 <= v <= want + over


def figures(server):
    for api, extra in (('chat', []), ('completions', []), ('chat', ['--no-stream'])):
        server.reset()
        (r,), _ = load(server, '--api', api, '--parallel', '2',
                       '--number', '6', '--input-length', '64', '--output-length', '21', *extra)
        stream = not extra
        check(api, r['requests'] == 6 and r['succeeded'] == 6, r)
        check(api + ' input', abs(r['input_mean'] - 64) <= 1, r['input_mean'])
        check(api + ' output', r['output_mean'] == 21 and r['output_tokens'] == 126, r)
        check(api + ' ttft', near(r['ttft_ms']['p50'], server.middle(0), 40), r['ttft_ms'])
        check(api + ' latency', near(r['latency_ms']['p50'], server.middle(1), 60),
              r['latency_ms'])
        if stream:
            check(api + ' tpot', near(r['tpot_ms']['p50'], server.middle(2), 3), r['tpot_ms'])
            check(api + ' itl', r['itl_ms']['n'] == 6 * 20 and near(r['itl_ms']['p50'], 5, 5),
                  r['itl_ms'])
            check(api + ' pieces', r['tokens_per_piece'] == 1, r)
            want = (r['latency_ms']['mean'] - r['ttft_ms']['mean']) / 20
            check(api + ' tpot is (latency - ttft) / (out - 1)',
                  abs(r['tpot_ms']['mean'] - want) < 1e-3 * want, r)
        check(api + ' throughput',
              abs(r['output_tps'] - 126 / r['seconds']) < 0.01 * r['output_tps'], r)
        check(api + ' cached', r['cached_tokens'] == 12, r)
        check(api + ' at once', server.peak == 2, server.peak)
        b = server.bodies[-1]
        check(api + ' body', b['max_tokens'] == 21
              and b['min_tokens'] == 21 and b['ignore_eos'] is True, b)
        check(api + ' stream', bool(b.get('stream')) == stream, b)
    server.reset(multi=3)
    (r,), _ = load(server, '--parallel', '1', '--number',
                   '2', '--input-length', '40', '--output-length', '22')
    check('three tokens a piece', near(r['tokens_per_piece'], 3, 0.01), r)
    server.reset(torn=150)
    (r,), _ = load(server, '--parallel', '1', '--number',
                   '2', '--input-length', '40', '--output-length', '20')
    check('reads that end inside of an event',
          r['tokens_per_piece'] == 1 and r['itl_ms']['n'] == 2 * 19, r)


def arrivals(server, tmp):
    server.reset(ttft=0.001, tpot=0)
    levels, _ = load(server, '--parallel', '1,4', '--number',
                     '3,8', '--input-length', '32', '--output-length', '4', '--prefix-length', '16')
    check('two levels', [(r['concurrency'], r['requests']) for r in levels] == [(1, 3), (4, 8)],
          levels)
    texts = [b['messages'][0]['content'].split() for b in server.bodies[2:]]
    check('one prefix', len({tuple(t[:16]) for t in texts}) == 1
          and len({tuple(t[16:]) for t in texts}) == len(texts))
    server.reset(ttft=0.001, tpot=0)
    (r,), _ = load(server, '--rate', '100', '--number',
                   '60', '--input-length', '16', '--output-length', '2', '--warmup', '0')
    gaps = [b - a for a, b in zip(server.times[2:], server.times[3:])]
    mean = sum(gaps) / len(gaps)
    check('Poisson arrivals', 0.005 < mean < 0.02 and max(gaps) > 1.5 * mean, mean)
    server.reset(ttft=0.001, tpot=0)
    (r,), _ = load(server, '--parallel', '2', '--duration',
                   '0.4', '--input-length', '16', '--output-length', '2')
    check('by time', 0.39 <= r['seconds'] < 1.5 and r['requests'] > 5, r)
    trace = os.path.join(tmp, 'trace.jsonl')
    with open(trace, 'w') as f:
        for ms, n, ids in ((0, 700, [1, 2]), (100, 1100, [1, 3, 4]), (300, 20, [9])):
            f.write(json.dumps({'timestamp': ms, 'input_length': n,
                                'output_length': 3, 'hash_ids': ids}) + '\n')
    server.reset(ttft=0.001, tpot=0)
    (r,), _ = load(server, '--trace', trace, '--speed', '2')
    at = [t - server.times[2] for t in server.times[2:]]
    check('trace times', len(at) == 3 and 0.045 < at[1] < 0.12 and 0.145 < at[2] < 0.25, at)
    words = [b['messages'][0]['content'].split() for b in server.bodies[2:]]
    check('trace lengths', [len(w) for w in words] == [700, 1100, 20], [len(w) for w in words])
    check('trace blocks', words[0][:512] == words[1][:512]
          and words[0][512:600] != words[1][512:600])
    data = os.path.join(tmp, 'data.jsonl')
    with open(data, 'w') as f:
        f.write('{"messages": [{"role": "user", "content": "hello \\u00e9"}], "max_tokens": '
                '7}\n\nplain words\n')
    server.reset(ttft=0.001, tpot=0)
    (r,), _ = load(server, '--dataset', data, '--parallel',
                   '1', '--number', '3', '--warmup', '0', '--extra-args', '{"top_k": 3}')
    check('dataset', [b['messages'][0]['content'] for b in server.bodies]
          == ['hello \u00e9', 'plain words', 'hello \u00e9'], server.bodies)
    check('dataset lengths', [b['max_tokens'] for b in server.bodies] == [7, 128, 7])
    check('extra', all(b['top_k'] == 3 for b in server.bodies))
    ids = os.path.join(tmp, 'ids.jsonl')
    with open(ids, 'w') as f:
        f.write('{"ids": [0, 7, 9]}\n{"prompt": [1, 2], "max_tokens": 5}\n')
    server.reset(ttft=0.001, tpot=0)
    load(server, '--dataset', ids, '--parallel', '1', '--number', '2', '--warmup', '0', '--api',
         'completions')
    check('dataset of ids', [b['prompt'] for b in server.bodies] == [[0, 7, 9], [1, 2]],
          server.bodies)
    _, err = load(server, '--dataset', ids, '--parallel', '1', expect=2)
    check('ids for chat', 'token ids' in err and '--api completions' in err, err)
    server.reset(ttft=0.001, tpot=0)
    load(server, '--parallel', '1', '--number', '2', '--extra-args',
         '{"temperature": 0.5, "max_tokens": 3, "ignore_eos": false, "model": "other"}')
    check('extra instead', all((b['temperature'], b['max_tokens'], b['ignore_eos'],
                                b['model']) == (0.5, 3, False, 'other') for b in server.bodies) and
          not server.twice, server.bodies)
    server.reset(ttft=0.03, tpot=0.005, name='reasoning')
    (r,), _ = load(server, '--parallel', '1', '--number',
                   '2', '--input-length', '16', '--output-length', '9')
    check('reasoning is text', near(r['ttft_ms']['p50'], 30, 40) and r['tokens_per_piece'] == 1, r)


def limits(server):
    for number in ('16', '3'):
        server.reset(ttft=0.002, tpot=0, slow=0.02)
        p = subprocess.run([BUILD + '/sluice', 'load', '--url', 'http://127.0.0.1:%d/v1/'
                            % server.server_address[1], '--model', 'm', '-q',
                            '--sla-ttft', '115', '--sla-percentile', '50',
                            '--input-length', '16', '--output-length', '1', '--number', number],
                           capture_output=True, text=True, timeout=60)
        rows = [r.split() for r in p.stdout.strip().splitlines()]
        check('SLA search', p.returncode == 0
              and rows[-1][:-1] == 'highest concurrency that holds:'.split(), p.stdout)
        check('SLA level', rows[-1][-1] in '345' if number == '16' else int(rows[-1][-1]) < 64,
              p.stdout)
        check('as many requests as places', all(int(r[3]) >= int(r[0]) for r in rows[1:-1]),
              p.stdout)


def failures(server, tmp):
    server.reset(fail=lambda i: 429 if i >= 2 and i % 2 else None, ttft=0.001, tpot=0)
    (r,), err = load(server, '--parallel', '2', '--number',
                     '8', '--input-length', '16', '--output-length', '2', '--warmup', '0', expect=1)
    check('failures', r['failed'] == 4 and 'HTTP 429: made to fail' in r['first_failure'], r)
    server.reset(ttft=0.001, tpot=0)
    load(server, '--parallel', '1', '--number', '1', '--input-length', '16')
    server.reset(cut=True, ttft=0.001, tpot=0)
    _, err = load(server, '--parallel', '1', '--number',
                  '2', '--warmup', '0', '--input-length', '16', '--output-length', '40', expect=1)
    server.reset()
    key = os.path.join(tmp, 'key')
    with open(key, 'w') as f:
        f.write('secret-1\n')
    csv, html = os.path.join(tmp, 'o.csv'), os.path.join(tmp, 'o.html')
    load(server, '--parallel', '2,1', '--number', '2,1',
         '--api-key-file', key, '--csv', csv, '--html', html, '--output-length', '2')
    check('key', set(server.keys) == {'Bearer secret-1'}, server.keys)
    rows = open(csv).read().strip().splitlines()
    check('csv', len(rows) == 3 and all(len(r.split(',')) == len(rows[0].split(',')) for r in rows),
          rows)
    page = open(html).read()
    check('html', page.count('<svg') == 3 and 'http-equiv' not in page
          and page.count('<tr>') == 3 and 'nan' not in page)
    labels = re.findall(r'<text x="([\d.-]+)" y="[\d.]+" text-anchor="(\w+)">([^<]*)</text>', page)
    # a bound: see text/chart.h
    width = lambda t: 12 * sum(1.0 if c.isupper() or c in 'mw%@' else 0.66 for c in t)
    left = [float(x) - {'start': 0, 'middle': 0.5, 'end': 1}[a] * width(t) for x, a, t in labels]
    check('levels in their order', re.findall(r'<tr><td>(\d+)<', page) == ['1', '2'] and
          all(re.findall(r'>(\d)</text>\n<text[^>]*>(\d)</text>\n<text[^>]*>concurrent', p)
              == [('1', '2')] for p in page.split('<svg')[1:]), page)
    check('no label left of the drawing', len(labels) > 30 and min(left) >= 0,
          sorted(zip(left, labels))[:2])
    check('no exponents', not any(re.search(r'\de[+-]?\d', t) for _, _, t in labels), labels)
    ticks = [float(t) for _, a, t in labels if a == 'end']
    check('round ticks', all(float('%.1g' % t) == t or abs(float('%.2g' % t) - t) < 1e-9 * max(1, t)
                             for t in ticks), ticks)
    check('colours in both themes', all(page.count('.c%d{fill:#' % k) == 2 for k in range(8)) and
          all(k in '01' for k in re.findall(r'class="c(\d)"', page)) and 'fill="#' not in page)
    check('the table has two lines of names',
          page.count('colspan=3') == 2 and page.count('class="sub"') == 1)
    for args, what in ((['--parallel', '0'], '--parallel'),
                       ([], 'load needs'), (['--rate', '1'], '--rate needs'),
                       (['--parallel', '1', '--extra-args', '[1]'], 'no JSON object'),
                       (['--parallel', '1', '--rate', '2', '--number', '1'], 'one of them'),
                       (['--sla-ttft', '9', '--sla-percentile', '80'], '--sla-percentile 80'),
                       (['--parallel', '1', '--speed', '2'], '--speed'),
                       (['--parallel', '1,2', '--number', '1,2,3'], '3 values')):
        _, err = load(server, *args, expect=2)
        check('usage of ' + ' '.join(args), what in err and err.count('\n') == 1, err)
    for name in ('--csv', '--html', '--json'):
        server.reset()
        _, err = load(server, '--parallel', '1', '--number',
                      '1', name, os.path.join(tmp, 'none', 'x'), expect=1)
        check('no folder for ' + name,
              f'{name}: ' in err and 'No such file' in err and not server.keys, err)
    _, err = load(server, '--parallel', '1', url='http://127.0.0.1:1', expect=1)
    check('no server', '127.0.0.1:1' in err and err.count('\n') == 1, err)
    broken = os.path.join(tmp, 'broken.jsonl')
    with open(broken, 'w') as f:
        f.write('{"prompt": "a"}\n{"prompt": 3}\n')
    _, err = load(server, '--parallel', '1', '--dataset', broken, expect=1)
    check('bad line', 'line 2' in err and 'broken.jsonl' in err, err)
    with open(broken, 'w') as f:
        f.write('{"ids": [1, -2]}\n')
    _, err = load(server, '--parallel', '1', '--dataset', broken, '--api', 'completions', expect=1)
    check('bad ids', 'line 1' in err and 'not a list of token ids' in err, err)


def main():
    server = Fake()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as tmp:
        figures(server)
        arrivals(server, tmp)
        limits(server)
        failures(server, tmp)
    print('%d bad' % bad)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
