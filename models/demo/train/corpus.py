#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch the documentation packages and turn them into plain text.

  corpus.py WORK          writes WORK/text/PACKAGE.jsonl (one document a line), WORK/heldout.txt and
                          WORK/corpus.json (package, version, licence, documents, bytes)

Debian packages come through `apt-get download` and are unpacked with `dpkg -x` under WORK; nothing
is installed. Every document whose path hashes to the held-out class is kept out of the training
text, and the first ones of three packages of that class, up to HELDOUT_BYTES, become heldout.txt.
Some manuals repeat a page inside another: a line of 80 or more characters that also stands in
heldout.txt is taken out of the training text.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser

# package, licence of its text, folder inside the package, names to leave out
PACKAGES = [
    ('python3.11-doc', 'PSF-2.0 (examples 0BSD)', 'usr/share/doc/python3.11/html',
     r'genindex|search|changelog|whatsnew/|license|contents|py-modindex|copyright'),
    ('sqlite3-doc', 'public domain', 'usr/share/doc/sqlite3',
     r'releaselog|changes|syntax|keyword_index|sitemap|doclist|toc\.|chronology|'
     r'requirements|matrix|search'),
    ('python-django-doc', 'BSD-3-Clause', 'usr/share/doc/python-django-doc/html',
     r'genindex|search|_modules|releases/|contents|py-modindex'),
    ('python-flask-doc', 'BSD-3-Clause', 'usr/share/doc/python-flask-doc/html',
     r'genindex|search|_modules|changes|license|py-modindex'),
    ('python-jinja2-doc', 'BSD-3-Clause', 'usr/share/doc/python-jinja2-doc/html',
     r'genindex|search|_modules|changes|license|py-modindex'),
    ('sphinx-doc', 'BSD-2-Clause', 'usr/share/doc/sphinx-doc/html',
     r'genindex|search|_modules|changes|authors|py-modindex'),
]
HELDOUT_FROM = ('python3.11-doc', 'sqlite3-doc', 'python-django-doc')
HELDOUT_BYTES = 150_000
HELDOUT_ONE_IN = 24

BLOCK = {'p', 'div', 'section', 'li', 'ul', 'ol', 'dl',
         'dt', 'dd', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'pre', 'tr',
         'table', 'blockquote', 'br', 'hr', 'article', 'body', 'caption', 'td', 'th'}
SKIP = {'script', 'style', 'nav', 'head', 'button', 'svg', 'form', 'footer', 'select'}
SKIP_CLASS = re.compile(
    r'headerlink|sphinxsidebar|related|footer|mobile-nav|toctree|viewcode|fancy_toc|nosearch|'
    r'contents local|docs-')
VOID = {'br', 'hr', 'img', 'input', 'meta', 'link',
        'area', 'base', 'col', 'embed', 'source', 'wbr', 'track'}


class Text(HTMLParser):
    """Body text of a page: a paragraph a line, preformatted text as it is, lists as '- item'."""

    def __init__(self, start):
        super().__init__(convert_charrefs=True)
        self.out, self.line, self.pre, self.skip = [], '', 0, 0
        self.stack, self.start, self.on = [], start, 0

    def flush(self):
        s = ' '.join(self.line.split())
        if s and s != '-':
            self.out.append(s)
        self.line = ''

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        if tag in VOID:
            if tag == 'br':
                if self.pre:
                    self.line += '\n'
                else:
                    self.flush()
            return
        skip = tag in SKIP or bool(
            SKIP_CLASS.search((a.get('class') or '') + ' ' + (a.get('id') or '')))
        on = self.start is None or a.get('role') == self.start or a.get('id') == self.start
        self.stack.append((tag, skip, on))
        self.skip += skip
        self.on += on
        if self.skip or not self.on:
            return
        if tag == 'pre':
            self.flush()
            self.pre += 1
        elif tag in BLOCK and not self.pre:
            if tag in ('td', 'th'):
                self.line += '  '
            else:
                self.flush()
            if tag == 'li':
                self.line = '- '
            elif tag in ('h1', 'h2', 'h3'):
                self.out.append('')
                self.line = '#' * int(tag[1]) + ' '

    def handle_endtag(self, tag):
        if tag in VOID or not any(t[0] == tag for t in self.stack):
            return
        while self.stack:
            t, skip, on = self.stack.pop()
            if not self.skip and self.on:
                if t == 'pre' and self.pre:
                    self.pre -= 1
                    if not self.pre:
                        body = '\n'.join(x.rstrip()
                                         for x in self.line.expandtabs().strip('\n').split('\n'))
                        if body.strip():
                            self.out.append('```\n' + body + '\n```')
                        self.line = ''
                elif t in BLOCK and t not in ('td', 'th') and not self.pre:
                    self.flush()
            self.skip -= skip
            self.on -= on
            if t == tag:
                break

    def handle_data(self, data):
        if not self.skip and self.on:
            self.line += data


def page_text(path):
    """The page as text in NFC, or '' when there is too little of it."""
    raw = open(path, encoding='utf-8', errors='replace').read()
    start = 'main' if 'role="main"' in raw else ('docs-content'
                                                 if 'id="docs-content"' in raw else None)
    p = Text(start)
    p.feed(raw)
    p.flush()
    s = re.sub(r'\n{3,}', '\n\n',
               '\n'.join(p.out)).replace('\u00b6', '').replace('\u00a0', ' ').strip() + '\n'
    s = s.translate({0x2019: "'", 0x2018: "'", 0x201c: '"',
                     0x201d: '"', 0x2013: '-', 0x2014: '-', 0x2026: '...'})
    return unicodedata.normalize('NFC', s) if len(s) > 400 else ''


def held_out(pkg, rel):
    """Whether a document belongs to the held-out class: it follows from its name alone."""
    if pkg not in HELDOUT_FROM:
        return False
    return int.from_bytes(hashlib.sha256(f'{pkg}/{rel}'.encode()).digest()[:4],
                          'little') % HELDOUT_ONE_IN == 0


def fetch(work, pkg):
    """Download and unpack one package; its version."""
    deb, root = os.path.join(work, 'deb'), os.path.join(work, 'x', pkg)
    os.makedirs(deb, exist_ok=True)
    if not os.path.isdir(root):
        os.makedirs(root)
        subprocess.run(['apt-get', 'download', pkg], cwd=deb, check=True, stderr=subprocess.DEVNULL)
        name = [f for f in os.listdir(deb) if f.startswith(pkg + '_')][0]
        subprocess.run(['dpkg', '-x', os.path.join(deb, name), root], check=True)
    name = [f for f in os.listdir(deb) if f.startswith(pkg + '_')][0]
    return name.split('_')[1].replace('%3a', ':')


def main():
    work = sys.argv[1]
    os.makedirs(os.path.join(work, 'text'), exist_ok=True)
    seen, table, held = set(), [], {p: [] for p in HELDOUT_FROM}
    for pkg, licence, folder, leave in PACKAGES:
        version = fetch(work, pkg)
        root = os.path.join(work, 'x', pkg, folder)
        if not os.path.isdir(root):
            root = os.path.join(work, 'x', pkg, os.path.dirname(folder))
        n = size = 0
        with open(os.path.join(work, 'text', pkg + '.jsonl'), 'w', encoding='utf-8') as out:
            files = sorted(os.path.join(d, f) for d,
                           _, fs in os.walk(root) for f in fs if f.endswith('.html'))
            for f in files:
                rel = os.path.relpath(f, root)
                if re.search(leave, rel) or os.path.islink(f):
                    continue
                s = page_text(f)
                key = hashlib.sha256(s.encode()).digest()
                if not s or key in seen:
                    continue
                seen.add(key)
                if held_out(pkg, rel):
                    held[pkg].append((rel, s))
                    continue
                out.write(json.dumps({'path': rel, 'text': s}, ensure_ascii=False) + '\n')
                n += 1
                size += len(s.encode())
        table.append({'package': pkg, 'version': version,
                      'licence': licence, 'documents': n, 'bytes': size})
        print(table[-1], flush=True)
    table.append({'package': 'iso-codes', 'version': fetch(work, 'iso-codes'),
                  'documents': 0, 'bytes': 0,
                  'licence': 'LGPL-2.1+ (only names and codes of currencies and countries are '
                             'looked up)'})
    parts, names = [], []
    for pkg in HELDOUT_FROM:
        got = 0
        for rel, s in held[pkg]:
            if got + len(s) > HELDOUT_BYTES // len(HELDOUT_FROM):
                continue
            parts.append(s)
            names.append(f'{pkg}/{rel}')
            got += len(s.encode())
    with open(os.path.join(work, 'heldout.txt'), 'w', encoding='utf-8') as f:
        f.write('\n'.join(parts))
    banned = {x for p in parts for x in p.split('\n') if len(x) >= 80}
    for row in table[:-1]:
        path = os.path.join(work, 'text', row['package'] + '.jsonl')
        docs = [json.loads(x) for x in open(path, encoding='utf-8')]
        row['bytes'] = 0
        with open(path, 'w', encoding='utf-8') as out:
            for d in docs:
                d['text'] = '\n'.join(x for x in d['text'].split('\n') if x not in banned)
                row['bytes'] += len(d['text'].encode())
                out.write(json.dumps(d, ensure_ascii=False) + '\n')
    with open(os.path.join(work, 'corpus.json'), 'w', encoding='utf-8') as f:
        json.dump({'packages': table, 'heldout': names}, f, indent=1)
    print('heldout', sum(len(p) for p in parts), names)


if __name__ == '__main__':
    main()
