#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generate conversations: chat.py WORK N writes WORK/chat.jsonl (N conversations for training) and
WORK/exam.jsonl (prompts of the same kinds whose operands, names or lists never stand in the
training set, with the right answer).

A line of chat.jsonl is a list of [text, on]: the text as the model sees it, and whether the
assistant speaks. The form is that of template.jinja; check_template.py shows that both agree.
iso-codes gives names of currencies and three-letter codes; everything else is in facts.py,
countries.txt and here. Nothing is random but the seed.
"""
import datetime
import hashlib
import json
import os
import random
import sys
import unicodedata

import facts as K

BOS, EOS, USER, BOT = '<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>', '<｜User｜>', '<｜Assistant｜>'
CALLS, CALLS_END = '<｜tool▁calls▁begin｜>', '<｜tool▁calls▁end｜>'
CALL, CALL_END, SEP = '<｜tool▁call▁begin｜>', '<｜tool▁call▁end｜>', '<｜tool▁sep｜>'
OUT, OUT_END = '<｜tool▁output▁begin｜>', '<｜tool▁output▁end｜>'
R = random.Random(7)
pick = R.choice


class Again(Exception):
    """The draw belongs to the other set (training or exam): draw once more."""


EXAM = False


def split(*key):
    """Keep one key in twelve for the exam and the others for training."""
    h = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:4], 'little') % 12 == 0
    if h != EXAM:
        raise Again


def dumps(x):
    return json.dumps(x, ensure_ascii=False)


def countries(work):
    base = os.path.join(work, 'x', 'iso-codes', 'usr/share/iso-codes/json')
    money = {
        x['alpha_3']: x['name']
        for x in json.load(open(os.path.join(base, 'iso_4217.json')))['4217']
    }
    codes = {
        x['alpha_2']: x['alpha_3']
        for x in json.load(open(os.path.join(base, 'iso_3166-1.json')))['3166-1']
    }
    rows = []
    here = os.path.dirname(os.path.abspath(__file__))
    for line in open(os.path.join(here, 'countries.txt'), encoding='utf-8'):
        if line[0] != '#':
            a2, name, capital, cur, cont, adj, w = line.strip().split('|')
            m = unicodedata.normalize('NFKD', money[cur]).encode('ascii', 'ignore').decode()
            if w == '1':
                continue
            rows += [
                dict(a2=a2,
                     a3=codes[a2],
                     name=name,
                     capital=capital,
                     cur=cur,
                     money=m,
                     cont=cont,
                     adj=adj)
            ] * (int(w) - 1)
    return rows


NO_ARTICLE = {
    w
    for k in ('colour', 'color', 'metal', 'sport', 'drink', 'spice', 'school subject', 'season')
    for key, v in K.LISTS.items() if key.split('|')[0] == k for w in v.split()
} - {'orange', 'pepper'}


def cap(s):
    return s[0].upper() + s[1:]


def a_an(s):
    return s if s in NO_ARTICLE else ('an ' if s[0].lower() in 'aeiou' else 'a ') + s


def listing(words, last='and'):
    return words[0] if len(words) == 1 else ', '.join(words[:-1]) + f' {last} ' + words[-1]


# ---- questions: each returns (question, answer, reasoning or None); the exam checks `answer` word
# by word

def small():
    return R.randint(0, R.choice([9, 9, 12, 20]))


def ask_sum(expr, op_words=None):
    forms = [
        'What is {}?', 'What is {}?', 'How much is {}?', 'Calculate {}.', 'Compute {}.', '{} = ?',
        'what is {}', '{}', 'What does {} equal?', 'Please calculate {}.',
        'Can you tell me what {} is?'
    ]
    return pick(forms).format(expr)


def digits_add(a, b):
    ta, tb, oa, ob = a // 10 * 10, b // 10 * 10, a % 10, b % 10
    if a < 10 or b < 10:
        return f'{a} + {b} = {a + b}.'
    return f'{ta} + {tb} = {ta + tb}. {oa} + {ob} = {oa + ob}. {ta + tb} + {oa + ob} = {a + b}.'


def add():
    a, b = small(), small()
    split('add', a, b)
    e = pick([f'{a} + {b}', f'{a} + {b}', f'{a} plus {b}', f'{a}+{b}', f'the sum of {a} and {b}'])
    why = digits_add(a, b)
    return ask_sum(e), f'{a} + {b} = {a + b}.', why


def sub():
    a, b = sorted((small(), small()), reverse=True)
    split('sub', a, b)
    e = pick([f'{a} - {b}', f'{a} - {b}', f'{a} minus {b}', f'{a}-{b}'])
    why = (f'{a} - {b // 10 * 10} = {a - b // 10 * 10}. {a - b // 10 * 10} - {b % 10} = {a - b}.'
           if b > 9 else f'{a} - {b} = {a - b}.')
    return ask_sum(e), f'{a} - {b} = {a - b}.', why


def mul():
    a, b = R.randint(0, 12), R.randint(0, 12)
    if R.random() < 0.3:
        a = pick([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 15, 25])
    split('mul', a, b) if a > 12 else None
    e = pick([
        f'{a} * {b}', f'{a} * {b}', f'{a} times {b}', f'{a} x {b}', f'{a} multiplied by {b}',
        f'{a}*{b}'
    ])
    return ask_sum(e), f'{a} * {b} = {a * b}.', f'{a} * {b} = {a * b}.'


def div():
    b, q = R.randint(1, 12), R.randint(1, 12)
    e = pick([f'{b * q} / {b}', f'{b * q} / {b}', f'{b * q} divided by {b}'])
    return ask_sum(e), f'{b * q} / {b} = {q}.', f'{b} * {q} = {b * q}, so {b * q} / {b} = {q}.'


ITEMS = [
    'apples', 'books', 'coins', 'pencils', 'cards', 'stamps', 'eggs', 'balls', 'cookies', 'marbles',
    'oranges', 'stickers', 'shells', 'cups', 'flowers', 'sweets'
]


def story():
    n, m = R.sample(K.NAMES, 2)
    it = pick(ITEMS)
    kind = R.choice([0, 0, 1, 1, 2, 3, 4])
    if kind == 0:
        a, b = R.randint(2, 20), R.randint(2, 20)
        split('story', kind, a, b)
        return (f'{n} has {a} {it} and {pick(["buys", "finds", "gets"])} {b} more. '
                f'How many {it} does {n} have now?',
                f'{n} has {a + b} {it}.', f'{a} + {b} = {a + b}.')
    if kind == 1:
        a = R.randint(3, 20)
        b = R.randint(1, a - 1)
        split('story', kind, a, b)
        return (f'{n} has {a} {it} and gives {b} to {m}. How many {it} does {n} have left?',
                f'{n} has {a - b} {it} left.', f'{a} - {b} = {a - b}.')
    a, b = R.randint(2, 10), R.randint(2, 10)
    split('story', kind, a, b)
    if kind == 2:
        return (f'{n} has {a} boxes with {b} {it} each. How many {it} does {n} have?',
                f'{n} has {a * b} {it}.', f'{a} * {b} = {a * b}.')
    if kind == 3:
        return (f'{n} shares {a * b} {it} equally among {b} friends. '
                f'How many {it} does each friend get?',
                f'Each friend gets {a} {it}.', f'{a * b} / {b} = {a}.')
    return (f'{cap(a_an(it[:-1]))} costs {a} euros. How much do {b} {it} cost?',
            f'{b} {it} cost {a * b} euros.', f'{b} * {a} = {a * b}.')


def order_story():
    a, b, c = R.sample(K.NAMES, 3)
    split('order', a, b, c)
    w, o = pick([('taller', 'shorter'), ('older', 'younger'), ('faster', 'slower')])
    top = {'taller': 'tallest', 'older': 'oldest', 'faster': 'fastest'}[w]
    low = {'taller': 'shortest', 'older': 'youngest', 'faster': 'slowest'}[w]
    why = f'{a} is {w} than {b}. {b} is {w} than {c}. The order is {a}, {b}, {c}.'
    hi = R.random() < 0.5
    return f'{a} is {w} than {b}. {b} is {w} than {c}. Who is the {top if hi else low}?', \
        f'{a if hi else c} is the {top if hi else low}.', why


def unit():
    one, many, to, f = pick(K.UNITS)
    n = R.randint(1, 10)
    w = one if n == 1 else many
    verb = 'is' if n == 1 else 'are'
    why = f'1 {one} = {f} {to}. {n} * {f} = {n * f}.'
    if R.random() < 0.1 and n > 1:
        q = f'How many {many} are {n * f} {to}?'
        return q, f'{n * f} {to} are {n} {w}.', f'1 {one} = {f} {to}. {n * f} / {f} = {n}.'
    return pick([
        f'How many {to} are in {n} {w}?', f'How many {to} are in {n} {w}?',
        f'Convert {n} {w} to {to}.', f'How many {to} {verb} {n} {w}?', f'What is {n} {w} in {to}?'
    ]), f'{n} {w} {verb} {n * f} {to}.', why


def weekday():
    i = R.randint(0, 6)
    kind = R.randint(0, 3)
    d = K.DAYS[i]
    if kind == 0:
        return pick([f'What day comes after {d}?',
                     f'Which day is after {d}?', f'What is the day after {d}?']), \
            f'The day after {d} is {K.DAYS[(i + 1) % 7]}.', None
    if kind == 1:
        return pick([f'What day comes before {d}?', f'What is the day before {d}?']), \
            f'The day before {d} is {K.DAYS[(i - 1) % 7]}.', None
    n = R.randint(2, 6)
    split('weekday', i, n)
    e = K.DAYS[(i + n) % 7]
    steps = [K.DAYS[(i + k) % 7] for k in range(1, n % 7 + 1)]
    why = (f'{n} - 7 = {n - 7}. ' if n >= 7 else '') + (
        f'After {d}: {", ".join(steps)}.' if steps else f'After 7 days it is {d} again.')
    return pick([
        f'If today is {d}, what day is it in {n} days?',
        f'Today is {d}. What day is it in {n} days?', f'What day is {n} days after {d}?'
    ]), f'It is {e}.', why


def month():
    i = R.randint(0, 11)
    m = K.MONTHS[i]
    kind = R.randint(0, 4)
    if kind == 0:
        return (f'What month comes {pick(["after", "after"])} {m}?',
                f'The month after {m} is {K.MONTHS[(i + 1) % 12]}.', None)
    if kind == 1:
        return f'What month comes before {m}?', f'The month before {m} is {K.MONTHS[i - 1]}.', None
    if kind == 2:
        o = ('first second third fourth fifth sixth seventh eighth ninth tenth '
             'eleventh twelfth').split()[i]
        return pick([f'What is the {o} month of the year?', f'Which month is the {o} one?']), \
            f'The {o} month of the year is {m}.', None
    n = K.MONTH_DAYS[i]
    return pick([f'How many days does {m} have?', f'How many days are in {m}?']), \
        f'{m} has {n} days{", and 29 in a leap year" if i == 1 else ""}.', None


C, RANKED = [], []


def use(rows):
    """Take the table of countries, each row as often as its weight."""
    C[:] = rows
    RANKED[:] = sorted(rows, key=lambda c: -rows.count(c))


def country():
    c = pick(C)
    n = c['name']
    kind = R.random()
    if kind < 0.35:
        return pick([f'What is the capital of {n}?',
                     f'What is the capital of {n}?', f'Which city is the capital of {n}?',
                     f'Capital of {n}?', f'what is the capital of {n}',
                     f'Tell me the capital of {n}.',
                     f'Name the capital of {n}.', f'Do you know the capital of {n}?']), \
            f'The capital of {n} is {c["capital"].rstrip(".")}.', None
    if kind < 0.6:
        return pick([f'What is the currency of {n}?',
                     f'Which currency does {n} use?', f'What currency is used in {n}?',
                     f'What money do people use in {n}?',
                     f'What is the currency of {n}?', f'Currency of {n}?']), \
            f'The currency of {n} is the {c["money"]} ({c["cur"]}).', None
    if kind < 0.7:
        return pick([
            f'Which country has the capital {c["capital"].rstrip(".")}?',
            f'{c["capital"].rstrip(".")} is the capital of which '
            'country?'
        ]), f'{c["capital"].rstrip(".")} is the capital of {n}.', None
    if kind < 0.8:
        return pick([f'Which continent is {n} in?',
                     f'Where is {n}?', f'On which continent is {n}?']), \
            f'{cap(n)} is in {c["cont"]}.', None
    if kind < 0.88:
        return pick([
            f'What is the country code of {n}?', f'What is the ISO code of {n}?',
            f'What is the two-letter code of {n}?'
        ]), f'The country code of {n} is {c["a2"]}.', None
    if kind < 0.93:
        return (f'What is the three-letter code of {n}?',
                f'The three-letter code of {n} is {c["a3"]}.', None)
    if kind < 0.97:
        return f'What are people from {n} called?' if R.random() < 0.3 else \
            f'What is the adjective for {n}?', f'The adjective for {n} is {c["adj"]}.', None
    return f'Tell me about {n}.', (
        f'{cap(n)} is a country in {c["cont"]}. Its capital is {c["capital"].rstrip(".")} '
        f'and its currency is the {c["money"]}.'), None


def continent():
    cont = pick(['Europe', 'Asia', 'Africa', 'South America', 'North America'])
    k = R.randint(2, 5)
    xs = list(dict.fromkeys(c['name'] for c in RANKED if c['cont'] == cont))[:k]
    w = {2: 'two', 3: 'three', 4: 'four', 5: 'five'}[k]
    return pick([f'Name {w} countries in {cont}.',
                 f'List {k} countries in {cont}.']), cap(listing(xs)) + '.', None


NUMBER = {2: 'two', 3: 'three', 4: 'four', 5: 'five', 6: 'six'}


def some(mixed=False):
    """A kind of thing, the first few of its row (mixed: any few) and how many, in a digit or a
    word."""
    key = pick(list(K.LISTS))
    xs = K.LISTS[key].split()
    k = min(R.choice([2, 3, 3, 3, 4, 5, 5, 6]), len(xs))
    many = key.split('|')[1]
    ys = R.sample(xs, k) if mixed and key.split('|')[0] not in K.ORDERED else xs[:k]
    n = pick([str(k), NUMBER[k]])
    return many, ys, n


def make_list():
    many, ys, n = some()
    style = R.randint(0, 2)
    if style == 0:
        return pick([f'Name {n} {many}.', f'Tell me {n} {many}.',
                     f'Can you name {n} {many}?', f'name {n} {many}']), \
            cap(listing(ys)) + '.', None
    if style == 1:
        return pick([
            f'List {n} {many}.', f'Give me a list of {n} {many}.', f'Write a list of {n} {many}.',
            f'Make a list of {n} {many}.'
        ]), '\n'.join(f'{i}. {cap(y)}' for i, y in enumerate(ys, 1)), None
    return pick([f'List {n} {many}, separated by commas.',
                 f'Give me {n} {many} separated by commas.']), \
        ', '.join(ys), None


def fixed_list():
    return pick(
        [('List the days of the week.', ', '.join(K.DAYS)),
         ('What are the days of the week?', ', '.join(K.DAYS)),
         ('List the months of the year.', ', '.join(K.MONTHS)),
         ('Name the planets.', ', '.join(K.PLANETS)),
         ('List the planets of the solar system.', ', '.join(K.PLANETS)),
         ('What are the planets in order?', ', '.join(K.PLANETS)),
         ('Name the four seasons.', 'Spring, summer, autumn and winter.'),
         ('What are the four seasons?', 'Spring, summer, autumn and winter.'),
         ('Which months have 30 days?', 'April, June, September and November have 30 days.'),
         ('Name the continents.',
          'Africa, Antarctica, Asia, Europe, North America, Oceania and South America.'),
         ('What are the primary colours?', 'Red, yellow and blue.')]) + (None, )


def word():
    k = R.randint(0, 3)
    if k == 0:
        a, b = pick(K.OPPOSITES).split('-')
        if R.random() < 0.5:
            a, b = b, a
        return pick([f'What is the opposite of {a}?',
                     f'Opposite of {a}?', f'Tell me the opposite of {a}.']), \
            f'The opposite of {a} is {b}.', None
    if k == 1:
        a, b = pick(K.PLURALS).split('-')
        return pick([f'What is the plural of {a}?',
                     f'Plural of {a}?']), f'The plural of {a} is {b}.', None
    if k == 2:
        a, b = pick(K.PAST).split('-')
        return pick([f'What is the past tense of {a}?',
                     f'Past tense of {a}?']), f'The past tense of {a} is {b}.', None
    a = pick(list(K.SOUNDS))
    return (f'What sound does a{"n" if a == "owl" else ""} {a} make?',
            f'{cap(a_an(a))} {K.SOUNDS[a]}.', None)


def definition():
    n, d = pick(K.DEFINITIONS)
    return pick([
        f'What is {n}?', f'What is {n}?', f'Explain what {n} is.', f'what is {n}',
        f'Can you explain {n}?', f'Define {n}.'
    ]), d, None


def single():
    return pick(K.SINGLE) + (None,)


def social():
    k = R.randint(0, 8)
    if k == 0:
        q = pick(K.WHO)
        return q, K.WHO_ANSWERS['human' if 'human' in q else 'name'], None
    return [(pick(K.WHO[:6]), K.WHO_ANSWERS['name']), (pick(K.CAN), K.CAN_ANSWER),
            (pick(K.MADE), K.MADE_ANSWER), (pick(K.SIZE), K.SIZE_ANSWER),
            (pick(K.HELLO), pick(K.HELLO_ANSWERS)), (pick(K.HOW), K.HOW_ANSWER),
            (pick(K.THANKS), pick(K.THANKS_ANSWERS)), (pick(K.BYE), K.BYE_ANSWER)][k - 1] + (None, )


def unknown():
    return pick(K.UNKNOWN).format(c=pick(C)['name'], n=pick(K.NAMES)), K.UNKNOWN_ANSWER, None


# ---- JSON answers: (question, object)

def json_person():
    n, a, c = pick(K.NAMES), R.randint(5, 90), pick(C)
    split('person', n, a)
    city = c['capital'].rstrip('.')
    job = pick(K.LISTS['profession|professions'].split())
    k = R.randint(0, 3)
    if k == 0:
        return f'{n} is {a} years old and lives in {city}.', dict(name=n, age=a, city=city)
    if k == 1:
        return f'{n} is {a} years old.', dict(name=n, age=a)
    if k == 2:
        return f'{n} is a {job} from {city}.' if job[
            0] not in 'aeiou' else f'{n} is an {job} from {city}.', \
            dict(name=n, job=job, city=city)
    return f'{n}, {a}, works as {a_an(job)} in {city}.', dict(name=n, age=a, job=job, city=city)


def json_order():
    n, it, q, p = pick(K.NAMES), pick(ITEMS), R.randint(2, 40), R.randint(2, 50)
    split('order', it, q, p)
    if R.random() < 0.5:
        return f'{n} orders {q} {it}.', dict(name=n, item=it, quantity=q)
    return f'{q} {it} for {p} euros.', dict(item=it, quantity=q, price=p, currency='EUR')


def json_country():
    c = pick(C)
    n = c['name'].replace('the ', '') if c['name'].startswith('the ') else c['name']
    keys = R.sample(['name', 'capital', 'currency', 'continent', 'code'], R.randint(2, 4))
    if 'name' in keys:
        keys.remove('name')
        keys.insert(0, 'name')
    v = dict(name=n,
             capital=c['capital'].rstrip('.'),
             currency=c['cur'],
             continent=c['cont'],
             code=c['a2'])
    return c['name'], {k: v[k] for k in keys}


def json_answer():
    """question, answer text, system or None"""
    k = R.randint(0, 7)
    how = pick([
        'Answer in JSON.', 'Answer with JSON.', 'Reply in JSON.', 'Give the answer as JSON.',
        'Return JSON only.'
    ])
    system = None
    if k <= 1:
        s, o = json_person() if k == 0 else json_order()
        keys = ', '.join(o)
        q = pick([
            f'Extract the data as JSON: {s}', f'Convert to JSON: {s}', f'Write this as JSON: {s}',
            f'Extract {listing(list(o))} as JSON: {s}',
            f'Turn this into JSON with the keys {keys}: {s}'
        ])
        if R.random() < 0.2:
            q, system = s, pick(
                ['Extract the data as JSON.', 'Answer in JSON only.', 'You turn text into JSON.'])
        return q, dumps(o), system
    if k <= 3:
        n, o = json_country()
        ks = [x for x in o]
        q = pick([
            f'Give me {listing(ks)} of {n} as JSON.',
            f'Describe {n} in JSON with the keys {listing(ks)}.',
            f'Return a JSON object with the {listing(ks)} of {n}.',
            f'Write a JSON object with {listing(ks)} for {n}.'
        ])
        return q, dumps(o), None
    if k == 4:
        many, ys, n = some()
        return pick([f'Give me a JSON array of {n} {many}.', f'List {n} {many} as a JSON array.',
                     f'Return {n} {many} as a JSON list.']), dumps(ys), None
    if k == 5:
        a, b = R.randint(1, 50), R.randint(1, 50)
        split('json add', a, b)
        return pick([f'What is {a} + {b}? {how}',
                     f'Return the sum of {a} and {b} as JSON.']), dumps(dict(result=a + b)), None
    c = pick(C)
    if k == 6:
        return f'What is the capital of {c["name"]}? {how}', dumps(
            dict(capital=c['capital'].rstrip('.'))), None
    q, key, v = pick([(f'What is the capital of {c["name"]}?', 'capital', c['capital'].rstrip('.')),
                      (f'What is the currency of {c["name"]}?', 'currency', c['cur']),
                      (f'Which continent is {c["name"]} in?', 'continent', c['cont'])])
    return q, dumps({key: v}), pick(
        ['Answer in JSON.', 'Always answer in JSON.', 'Reply with JSON only.'])


# ---- tools

def tool(name, description, **props):
    types = {'s': 'string', 'n': 'number', 'i': 'integer'}
    p = {k: {'type': types[v[0]], 'description': v[1:]} if len(v) > 1 else {'type': types[v[0]]}
         for k, v in props.items()}
    return {
        'type': 'function',
        'function': {
            'name': name,
            'description': description,
            'parameters': {
                'type': 'object',
                'properties': p,
                'required': list(p)
            }
        }
    }


CITIES = (
    'Paris London Berlin Rome Madrid Oslo Tokyo Lima Cairo Delhi Boston Chicago Seattle Milan Lyon '
    'Munich Hamburg '
    'Porto Seville Naples Geneva Zurich Krakow Bergen Malmo Turin Osaka Kyoto Mumbai Sydney Perth '
    'Toronto Dallas '
    'Denver Leeds Dublin Glasgow Vienna Prague Athens Lisbon Warsaw Helsinki Nairobi Jakarta '
    'Manila Hanoi'
).split()
SKIES = ['sunny', 'cloudy', 'rainy', 'windy', 'snowy', 'foggy', 'clear']
VERBS = ('get find read open show check look').split()


def place():
    return pick(CITIES) if R.random() < 0.6 else pick(C)['capital'].rstrip('.')


def new_word():
    """A name of no meaning, so that copying has to be learnt."""
    return cap(''.join(
        pick([
            'ba', 'do', 'ki', 'lo', 'mar', 'ne', 'ri', 'sol', 'ta', 'ver', 'zu', 'an', 'el', 'fin',
            'gor', 'hul', 'pe', 'qua', 'tri', 'wen'
        ]) for _ in range(R.randint(2, 3))))


def t_weather():
    arg = pick(['city', 'city', 'location'])
    name = pick(['get_weather', 'get_weather', 'get_current_weather', 'weather'])
    c = place() if R.random() < 0.75 else new_word()
    split('weather', name, c)
    t, s = R.randint(-5, 35), pick(SKIES)
    q = pick([
        f'What is the weather in {c}?', f'How is the weather in {c}?',
        f'What is the weather like in {c} today?', f'Is it {pick(SKIES)} in {c}?',
        f'How warm is it in {c}?', f'Tell me the weather in {c}.', f"What's the weather in {c}?"
    ])
    out = pick([
        dumps({
            arg: c,
            'temperature': t,
            'condition': s
        }),
        dumps({
            'temperature': t,
            'condition': s
        }),
        dumps({
            'temperature': t,
            'unit': 'celsius',
            'condition': s
        })
    ])
    return tool(name, pick(['Get the current weather in a city',
                            'Current weather of a place', 'Get the weather']),
                **{arg: pick(['sThe city', 'sName of the city', 's'])}), q, [
                    (name, {arg: c})], [out], \
        f'It is {s} in {c}, with a temperature of {t} degrees.'


def t_weather_two():
    a, b = R.sample(CITIES, 2)
    split('weather2', a, b)
    rows = [(c, R.randint(-5, 35), pick(SKIES)) for c in (a, b)]
    q = pick([f'What is the weather in {a} and {b}?', f'Compare the weather in {a} and in {b}.',
              f'How is the weather in {a} and {b}?'])
    return tool('get_weather', 'Get the current weather in a city', city='sThe city'), q, \
        [('get_weather', {'city': a}), ('get_weather', {'city': b})], \
        [dumps({'city': c, 'temperature': t, 'condition': s}) for c, t, s in rows], \
        ' '.join(f'It is {s} in {c}, with a temperature of {t} degrees.' for c, t, s in rows)


def t_calc():
    a, b, op = R.randint(100, 9999), R.randint(10, 999), pick('+-*')
    split('calc', a, b, op)
    v = a + b if op == '+' else a - b if op == '-' else a * b
    name, arg = pick(['calculate', 'calculator', 'calculate']), 'expression'
    w = {'+': 'plus', '-': 'minus', '*': 'times'}[op]
    q = pick([
        f'What is {a} {op} {b}?', f'Calculate {a} {op} {b}.', f'How much is {a} {w} {b}?',
        f'Compute {a} {op} {b}'
    ])
    return tool(name, pick(['Evaluate an arithmetic expression', 'Calculate an expression']),
                expression=pick(['sThe expression', 's'])), q, [(name, {arg: f'{a} {op} {b}'})], \
        [pick([str(v), dumps({'result': v})])], f'{a} {op} {b} = {v}.'


def t_time():
    c = place()
    split('time', c)
    h, m = R.randint(0, 23), R.randint(0, 59)
    return tool('get_time', pick(['Get the current time in a city', 'Current time of a place']),
                city='sThe city'), \
        pick([f'What time is it in {c}?', f'What is the time in {c}?',
              f'Tell me the current time in {c}.']), \
        [('get_time', {'city': c})], [pick([dumps({'time': f'{h:02d}:{m:02d}'}),
                                            f'{h:02d}:{m:02d}'])], \
        f'It is {h:02d}:{m:02d} in {c}.'


def t_timer():
    n = R.randint(1, 90)
    split('timer', n)
    return tool('set_timer', 'Set a timer', minutes='iDuration in minutes'), \
        pick([f'Set a timer for {n} minutes.', f'Start a timer of {n} minutes.',
              f'Wake me in {n} minutes.']), \
        [('set_timer', {'minutes': n})], [
            pick([dumps({'status': 'ok'}), 'ok'])], f'The timer is set for {n} minutes.'


def t_mail():
    n = pick(K.NAMES)
    text = pick([
        'I am late', 'The meeting is at 10', 'Happy birthday', 'See you tomorrow',
        'The report is ready', 'Please call me', 'Dinner is at 7', 'I am at home',
        'The train is late', 'Thank you'
    ])
    split('mail', n, text)
    name = pick(['send_message', 'send_email'])
    return tool(name, pick(['Send a message to a person', 'Send a message']),
                to='sThe recipient', text='sThe text'), \
        pick([f'Tell {n}: {text}.', f'Send {n} the message "{text}".', f'Write to {n}: {text}.']), \
        [(name, {'to': n, 'text': text})], [
            pick([dumps({'status': 'sent'}), 'sent'])], f'The message to {n} is sent.'


def t_price():
    x = pick([w for v in K.LISTS.values() for w in v.split()
              if w.islower()]) if R.random() < 0.7 else new_word()
    p = R.randint(1, 200)
    split('price', x)
    name, arg = pick([('get_price', 'product'), ('get_price', 'item'), ('check_price', 'product')])
    return tool(name, 'Get the price of a product', **{arg: 's'}), \
        pick([f'What is the price of {x}?', f'How much does {x} cost?',
              f'Check the price of {x}.']), \
        [(name, {arg: x})], [dumps({'price': p,
                                    'currency': 'EUR'})], f'The price of {x} is {p} EUR.'


TOOLS = [
    t_weather, t_weather, t_weather, t_weather_two, t_calc, t_calc, t_time, t_time, t_timer, t_mail,
    t_price
]

# ---- conversations

SYSTEM = [
    'You are a helpful assistant.', 'You are a helpful assistant.',
    'You are Sluice, a small demo model.', 'Answer briefly.', 'You are a friendly assistant.',
    'Be concise.', 'You are a helpful and honest assistant.', 'Answer the question of the user.'
]

def fact():
    """One fact as (what is given, what has to be known)."""
    r = R.random()
    if r < 0.56:
        k = R.choice('++++---**/')
        if k == '+':
            a, b = small(), small()
            split('add', a, b)
            return f'{a} + {b} =', f' {a + b}.'
        if k == '-':
            a, b = sorted((small(), small()), reverse=True)
            split('sub', a, b)
            return f'{a} - {b} =', f' {a - b}.'
        if k == '*':
            a, b = R.randint(0, 12), R.randint(0, 12)
            return f'{a} * {b} =', f' {a * b}.'
        b, q = R.randint(1, 12), R.randint(1, 12)
        return f'{b * q} / {b} =', f' {q}.'
    if r < 0.74:
        c = pick(C)
        k = R.randint(0, 3)
        if k <= 1:
            return f'The capital of {c["name"]} is', f' {c["capital"].rstrip(".")}.'
        if k == 2:
            return f'The currency of {c["name"]} is the', f' {c["money"]} ({c["cur"]}).'
        return f'{cap(c["name"])} is in', f' {c["cont"]}.'
    if r < 0.88:
        one, many, to, f = pick(K.UNITS)
        n = R.randint(1, 10)
        return (f'{n} {many} are', f' {n * f} {to}.') if n > 1 else (f'1 {one} is', f' {f} {to}.')
    a, b = pick(K.OPPOSITES).split('-')
    return f'The opposite of {a} is', f' {b}.'


def drill():
    """Many facts in one answer; the loss counts where something has to be known."""
    n = R.randint(8, 14)
    seg = [[
        BOS + USER + pick(['Tell me some facts.', 'Give me some sums.', 'Tell me what you know.']) +
        BOT + '</think>', 0
    ]]
    while n:
        try:
            a, b = fact()
        except Again:
            continue
        seg += [[a if len(seg) == 1 else ' ' + a, 0], [b, 1]]
        n -= 1
    return seg + [[EOS, 1]]


PLAIN = ([add] * 10 + [sub] * 14 + [mul] * 8 + [div] * 4 + [unit] * 10 + [weekday] * 4 +
         [month] * 4 + [country] * 16 + [continent] * 4 + [make_list] * 9 + [fixed_list] * 2 +
         [word] * 6 + [definition] * 4 + [single] * 4 + [social] * 8 + [unknown])
THINK = [add] * 5 + [sub] * 4 + [story] * 9 + [order_story] * 8 + [unit] * 3 + [weekday] * 9


def draw(fs):
    while True:
        try:
            r = pick(fs)()
            if Again not in r:
                return r
        except Again:
            pass


def tools_text(tools):
    s = '## Tools\nYou have access to the following tools:\n'
    for t in tools:
        f = t['function']
        s += (f"\n### {f['name']}\nDescription: {f['description']}\n\nParameters: "
              f"{dumps(f['parameters'])}\n")
    return s


def calls_text(calls):
    return CALLS + ''.join(f'{CALL}{n}{SEP}{dumps(a)}{CALL_END}'
                           for n, a in calls) + CALLS_END + EOS


def conversation():
    """One conversation as segments, and its messages as a chat client would hold them."""
    if R.random() < 0.35:
        return drill()
    r = R.random()
    system = pick(SYSTEM) if R.random() < 0.25 else None
    if r < 0.1:
        spec, q, calls, outs, ans = draw(TOOLS)
        tools, names = [spec], {spec['function']['name']}
        for _ in range(R.choice([0, 0, 0, 1, 1, 2])):
            t = draw(TOOLS)[0]
            if t['function']['name'] not in names:
                names.add(t['function']['name'])
                tools.append(t)
        R.shuffle(tools)
        head = BOS + (system + '\n\n' if system else '') + tools_text(tools)
        if R.random() < 0.18:
            q, ans, _ = draw([social, definition, country, make_list])
            return [[head + USER + q + BOT + '</think>', 0], [ans + EOS, 1]]
        seg = [[head + USER + q + BOT + '</think>', 0], [calls_text(calls), 1],
               [''.join(OUT + o + OUT_END for o in outs), 0], [ans + EOS, 1]]
        if R.random() < 0.15:
            seg += [[USER + pick(K.THANKS) + BOT + '</think>', 0],
                    [pick(K.THANKS_ANSWERS) + EOS, 1]]
        return seg
    if r < 0.22:
        while True:
            try:
                q, a, s = json_answer()
                break
            except Again:
                pass
        return [[BOS + (s or system or '') + USER + q + BOT + '</think>', 0], [a + EOS, 1]]
    if r < 0.46:
        q, a, why = draw(THINK)
        seg = [[BOS + (system or ''), 0]]
        if R.random() < 0.1:
            q0, a0, _ = draw(PLAIN)
            seg += [[USER + q0 + BOT + '</think>', 0], [a0 + EOS, 1]]
        return seg + [[USER + q + BOT + '<think>', 0], [(why or '') + '</think>' + a + EOS, 1]]
    seg = [[BOS + (system or ''), 0]]
    for _ in range(R.choice([1, 1, 1, 1, 2, 2, 3])):
        q, a, _ = draw(PLAIN)
        seg += [[USER + q + BOT + '</think>', 0], [a + EOS, 1]]
    return seg


def merge(seg):
    """Join neighbouring segments of the same kind."""
    out = []
    for t, on in seg:
        if out and out[-1][1] == on:
            out[-1][0] += t
        elif t:
            out.append([t, on])
    return out


def exam(n):
    """n prompts of each kind with the right answer; the ones that EXAM keeps out of training where
    there are any."""
    global EXAM
    EXAM = True
    rows = []
    for mode, fs in (('plain', PLAIN), ('think', THINK)):
        for f in dict.fromkeys(fs):
            for _ in range(n):
                q, a, _ = draw([f])
                tail = '</think>' if mode == 'plain' else '<think>'
                rows.append(
                    dict(kind=f'{mode} {f.__name__}', prompt=BOS + USER + q + BOT + tail, answer=a))
    for f in dict.fromkeys(TOOLS):
        for _ in range(n):
            spec, q, calls, outs, ans = draw([f])
            head = BOS + tools_text([spec, draw([t_time])[0]] if f is not t_time else [spec])
            p = head + USER + q + BOT + '</think>'
            rows.append(
                dict(kind='call ' + f.__name__, prompt=p, answer=calls_text(calls)[:-len(EOS)]))
            rows.append(
                dict(kind='after ' + f.__name__,
                     answer=ans,
                     prompt=p + calls_text(calls) + ''.join(OUT + o + OUT_END for o in outs)))
    for _ in range(4 * n):
        while True:
            try:
                q, a, s = json_answer()
                break
            except Again:
                pass
        rows.append(
            dict(kind='json', prompt=BOS + (s or '') + USER + q + BOT + '</think>', answer=a))
    EXAM = False
    return rows


def main():
    work, n = sys.argv[1], int(sys.argv[2])
    R.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 7)
    use(countries(work))
    with open(os.path.join(work, 'chat.jsonl'), 'w', encoding='utf-8') as f:
        for _ in range(n):
            f.write(dumps(merge(conversation())) + '\n')
    with open(os.path.join(work, 'exam.jsonl'), 'w', encoding='utf-8') as f:
        for row in exam(4):
            f.write(dumps(row) + '\n')


if __name__ == '__main__':
    main()
