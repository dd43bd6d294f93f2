#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss curve: plot.py WORK/log.jsonl OUT.svg. Training loss of the main model and of the MTP
layer (nats a token, a mean of 20 steps; chats and documentation together, in the shares of the
schedule), and the rate."""
import json
import sys

W, H, L, B, T, R = 760, 360, 52, 40, 24, 16


def main():
    rows = [json.loads(x) for x in open(sys.argv[1])]
    x1 = rows[-1]['tokens'] / 1e6
    y0, y1 = 0.0, 7.0

    def px(v):
        return L + v / x1 * (W - L - R)

    def py(v):
        return T + (y1 - min(v, y1)) / (y1 - y0) * (H - T - B)

    def line(key, colour):
        p = ' '.join(f'{px(r["tokens"] / 1e6):.1f},{py(r[key]):.1f}' for r in rows)
        return f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{p}"/>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{W}" height="{H}" fill="#fff"/>'
    ]
    for v in range(0, 8):
        out.append(
            f'<path d="M{L} {py(v):.1f}H{W - R}" stroke="#ddd"/><text x="{L - 8}" '
            f'y="{py(v) + 4:.1f}" '
            f'text-anchor="end">{v}</text>')
    step = 1 if x1 < 10 else 2 if x1 < 24 else 5
    for v in range(0, int(x1) + 1, step):
        out.append(f'<text x="{px(v):.1f}" y="{H - B + 16}" text-anchor="middle">{v}</text>')
    for a, b in zip(rows, rows[1:]):
        for key, name in (('t', 'rows of {} tokens'), ('share', 'chat {:.0%}')):
            if a[key] != b[key]:
                x = px(b['tokens'] / 1e6)
                y = T + (12 if key == 't' else 26)
                out.append(
                    f'<path d="M{x:.1f} {T}V{H - B}" stroke="#bbb" stroke-dasharray="3 3"/><text '
                    f'x="{x + 3:.1f}" '
                    f'y="{y}" fill="#777">{name.format(b[key])}</text>')
    out += [
        line('mtp', '#d98200'),
        line('loss', '#1f5fbf'),
        f'<text x="{(W + L) / 2}" y="{H - 6}" text-anchor="middle">million tokens seen</text>',
        f'<text x="14" y="{H / 2}" transform="rotate(-90 14 {H / 2})" text-anchor="middle">nats '
        'per token</text>',
        f'<text x="{W - R - 150}" y="{T + 46}" fill="#1f5fbf">main model</text>',
        f'<text x="{W - R - 150}" y="{T + 62}" fill="#d98200">MTP layer</text>', '</svg>'
    ]
    open(sys.argv[2], 'w').write('\n'.join(out) + '\n')


if __name__ == '__main__':
    main()
