#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chat template, rendered by jinja2 set up as transformers does, gives the very text that
chat.py writes."""
import json
import os

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

import chat as C

HERE = os.path.dirname(os.path.abspath(__file__))


def renderer():
    env = ImmutableSandboxedEnvironment(trim_blocks=True,
                                        lstrip_blocks=True, extensions=['jinja2.ext.loopcontrols'])
    env.filters['tojson'] = lambda x, **k: json.dumps(x, ensure_ascii=False, **k)

    def fail(message):
        raise jinja2.exceptions.TemplateError(message)
    env.globals['raise_exception'] = fail
    t = env.from_string(open(os.path.join(HERE, 'template.jinja'), encoding='utf-8').read())
    return lambda **k: t.render(bos_token=C.BOS, eos_token=C.EOS, **k)


def main():
    r = renderer()
    user = {'role': 'user', 'content': 'What is 2 + 3?'}
    head = C.BOS + C.USER + user['content'] + C.BOT
    assert r(messages=[user], add_generation_prompt=True) == head + '</think>'
    assert r(messages=[user], add_generation_prompt=True, thinking=True) == head + '<think>'
    assert r(messages=[user], add_generation_prompt=True, enable_thinking=True) == head + '<think>'
    assert r(messages=[user]) == C.BOS + C.USER + user['content']
    said = {'role': 'assistant', 'content': '2 + 3 = 5.</think>2 + 3 = 5.'}
    system = {'role': 'system', 'content': 'Be concise.'}
    assert r(messages=[system, user, said, user], add_generation_prompt=True) == (
        C.BOS + 'Be concise.' + C.USER + user['content']
        + C.BOT + '</think>2 + 3 = 5.' + C.EOS + C.USER +
        user['content'] + C.BOT + '</think>')
    for f in C.TOOLS:
        spec, q, calls, outs, ans = C.draw([f])
        for as_text in (False, True):
            messages = [system, {'role': 'user', 'content': q},
                        {'role': 'assistant', 'content': None, 'tool_calls': [
                {'type': 'function',
                 'function': {'name': n, 'arguments': C.dumps(a) if as_text else a}}
                for n, a in calls]}]
            messages += [{'role': 'tool', 'content': o} for o in outs]
            want = (C.BOS + 'Be concise.\n\n' + C.tools_text([spec])
                    + C.USER + q + C.BOT + '</think>' +
                    C.calls_text(calls) + ''.join(C.OUT + o + C.OUT_END for o in outs))
            assert r(messages=messages, tools=[spec], add_generation_prompt=True) == want
            messages += [{'role': 'assistant', 'content': ans}]
            assert r(messages=messages, tools=[spec]) == want + ans + C.EOS
    try:
        r(messages=[{'role': 'critic', 'content': ''}])
    except jinja2.exceptions.TemplateError:
        print('template: agrees')
        return
    raise AssertionError('an unknown role was rendered')


if __name__ == '__main__':
    import sys
    C.use(C.countries(sys.argv[1]))
    main()
