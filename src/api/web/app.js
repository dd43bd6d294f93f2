// SPDX-License-Identifier: Apache-2.0
// The chat page. The conversation and the settings live in this browser only: localStorage, and
// sessionStorage for what is a tab's own, which are the API key and its conversation (a new tab
// begins with the newest of all).
import { render } from './text.js';
import { Live, ask } from './live.js';

const $ = (id) => document.getElementById(id);
const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p',
                 'frequency_penalty', 'presence_penalty', 'max_tokens', 'seed'];
const CUT = 'The answer was cut off.';
const NEUTRAL = { top_p: 1, top_k: 0, min_p: 0, frequency_penalty: 0, presence_penalty: 0 };

let model = '';
let messages = []; // {role, content, reasoning, calls, stats, error, tool_call_id}
let running = null; // AbortController of the answer under way

// ---- what is kept ----
function keep() {
  const text = JSON.stringify(messages);
  try {
    sessionStorage.setItem('sluice.chat', text);
    localStorage.setItem('sluice.chat', text);
  } catch { /* full or forbidden: the page works without */ }
}

function keepSettings() {
  const s = { system: $('system').value, reasoning: $('reasoning').value, tools: $('tools').value };
  for (const n of NUMBERS) s[n] = $(n).value;
  try {
    localStorage.setItem('sluice.settings', JSON.stringify(s));
    sessionStorage.setItem('sluice.key', $('key').value);
  } catch { /* as above */ }
}

function recall() {
  try {
    const s = JSON.parse(localStorage.getItem('sluice.settings') ?? '{}');
    for (const [k, v] of Object.entries(s)) if ($(k) && typeof v === 'string') $(k).value = v;
    $('key').value = sessionStorage.getItem('sluice.key') ?? '';
    const m = JSON.parse(sessionStorage.getItem('sluice.chat')
                         ?? localStorage.getItem('sluice.chat') ?? '[]');
    const whole = (x) => typeof x?.role === 'string' && typeof x.content === 'string';
    if (Array.isArray(m)) messages = m.filter(whole);
  } catch {
    messages = [];
  }
}

function headers() {
  const key = $('key').value.trim();
  return key ? { Authorization: 'Bearer ' + key } : {};
}

// ---- showing ----
function button(text, title, act) {
  const b = document.createElement('button');
  b.type = 'button';
  b.textContent = text;
  b.title = title;
  b.addEventListener('click', act);
  return b;
}

function statsText(s) {
  const parts = [];
  if (s.prompt) parts.push(`${s.prompt} + ${s.tokens} tokens`);
  if (s.cached) parts.push(`${s.cached} cached`);
  if (s.ttft) parts.push(`first after ${Math.round(s.ttft)} ms`);
  if (s.tps) parts.push(`${s.tps.toFixed(1)} tok/s`);
  if (s.finish && s.finish !== 'stop') parts.push(s.finish);
  return parts.join(' · ');
}

function showCalls(box, m, i) {
  for (const c of m.calls ?? []) {
    const d = document.createElement('div');
    d.className = 'call';
    const name = document.createElement('b');
    name.textContent = 'calls ' + c.name;
    const args = document.createElement('pre');
    args.textContent = c.arguments;
    d.append(name, args);
    if (i === messages.length - 1 && !running) {
      const t = document.createElement('textarea');
      t.rows = 2;
      t.placeholder = 'result of this call';
      t.setAttribute('aria-label', 'result of ' + c.name);
      t.value = c.result ?? '';
      t.addEventListener('input', () => { c.result = t.value; });
      d.append(t);
    }
    box.append(d);
  }
  if (m.calls?.length && i === messages.length - 1 && !running) {
    box.append(button('Send results', 'go on with these results', sendResults));
  }
}

function fill(article, m, i) {
  const body = article.querySelector('.body'), foot = article.querySelector('.foot');
  if (m.role !== 'assistant') {
    body.textContent = m.content;
  } else {
    const text = document.createElement('div');
    render(text, m.content);
    const open = body.querySelector('details.think')?.open ?? false;
    body.replaceChildren();
    if (m.reasoning) {
      const d = document.createElement('details');
      d.className = 'think';
      d.open = open;
      const s = document.createElement('summary');
      const over = m.content || m.calls?.length || !article.classList.contains('busy');
      s.textContent = over ? 'Reasoning' : 'Reasoning …';
      d.append(s, m.reasoning.trim());
      body.append(d);
    }
    body.append(text);
    showCalls(body, m, i);
    text.classList.toggle('caret', article.classList.contains('busy'));
  }
  foot.replaceChildren();
  if (m.error) {
    const e = document.createElement('p');
    e.className = 'error';
    e.setAttribute('role', 'alert');
    e.textContent = m.error;
    foot.append(e);
  }
  if (article.classList.contains('busy')) {
    if (m.progress) foot.append(m.progress);
    return;
  }
  if (m.role === 'user') {
    foot.append(button('Edit', 'change this message and ask again', () => edit(i)));
  }
  if (m.role === 'assistant') {
    if (m.stats) foot.append(statsText(m.stats));
    foot.append(button('Copy', 'copy the answer', () => copy(m.content)));
  }
  if (i === messages.length - 1) {
    foot.append(button('Regenerate', 'answer once more (Alt+R)', regenerate));
  }
}

// Browsers have no clipboard on pages that came over plain HTTP from another machine: there a
// selection is copied.
function copy(text) {
  if (navigator.clipboard) {
    navigator.clipboard.writeText(text);
    return;
  }
  const t = document.createElement('textarea');
  t.value = text;
  document.body.append(t);
  t.select();
  document.execCommand('copy');
  t.remove();
}

// To the end of the conversation, or (stay) where somebody has scrolled to.
function showAll(stay = false) {
  const log = $('log'), top = log.scrollTop, low = log.scrollHeight - top - log.clientHeight < 80;
  log.replaceChildren();
  if (!messages.length) {
    const p = document.createElement('p');
    p.className = 'hint';
    p.textContent = 'Write a message. Enter sends, Shift+Enter makes a line, Escape stops, '
      + 'Alt+R answers again.';
    log.append(p);
  }
  messages.forEach((m, i) => {
    const a = document.createElement('article');
    a.className = m.role;
    a.setAttribute('aria-label', m.role);
    const body = document.createElement('div'), foot = document.createElement('div');
    body.className = 'body';
    foot.className = 'foot';
    a.append(body, foot);
    log.append(a);
    fill(a, m, i);
  });
  log.scrollTop = stay && !low ? top : log.scrollHeight;
}

function busy(on) {
  $('stop').hidden = !on;
  $('send').hidden = on;
  $('fresh').disabled = on;
}

// ---- the request ----
function toolList() {
  const t = $('tools').value.trim();
  if (!t) return null;
  const v = JSON.parse(t);
  if (!Array.isArray(v)) throw new Error('not an array');
  return v;
}

function body() {
  const out = { model, stream: true, stream_options: { include_usage: true }, messages: [] };
  if ($('system').value.trim()) out.messages.push({ role: 'system', content: $('system').value });
  for (const m of messages.slice(0, -1)) { // the last one is the answer to come
    if (m.role === 'assistant' && m.error && !m.content) continue;
    const x = { role: m.role, content: m.content };
    if (m.calls?.length) {
      x.tool_calls = m.calls.map((c) => (
        { id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } }));
    }
    if (m.tool_call_id) x.tool_call_id = m.tool_call_id;
    out.messages.push(x);
  }
  for (const n of NUMBERS) {
    const v = $(n).value;
    if (v === '' || Number(v) === NEUTRAL[n]) continue;
    out[n === 'max_tokens' ? 'max_completion_tokens' : n] = Number(v);
  }
  if ($('reasoning').value) out.reasoning_effort = $('reasoning').value;
  const tools = toolList();
  if (tools) out.tools = tools;
  return out;
}

// The data of each event in turn; comments are given as {comment}.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read().catch(
        (e) => { throw e.name === 'AbortError' ? e : new Error(CUT); });
    if (done) return;
    rest += value;
    let nl;
    while ((nl = rest.indexOf('\n')) >= 0) {
      const line = rest.slice(0, nl).replace(/\r$/, '');
      rest = rest.slice(nl + 1);
      if (line.startsWith(':')) yield { comment: line.slice(1).trim() };
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') {
        yield { done: true };
        return;
      }
      yield JSON.parse(data);
    }
  }
}

function takeDelta(m, d) {
  m.content += d.content ?? '';
  m.reasoning = (m.reasoning ?? '') + (d.reasoning_content ?? d.reasoning ?? '');
  for (const c of d.tool_calls ?? []) {
    m.calls ??= [];
    const at = (m.calls[c.index] ??= { id: '', name: '', arguments: '' });
    if (c.id) at.id = c.id;
    if (c.function?.name) at.name += c.function.name;
    at.arguments += c.function?.arguments ?? '';
  }
}

async function failure(r) {
  let text = 'HTTP ' + r.status;
  try {
    text = (await r.json()).error.message;
  } catch { /* no JSON: the status says it */ }
  if (r.status === 401) {
    $('settings').open = true;
    text += ' (the key goes into Settings)';
  }
  return new Error(text);
}

async function receive(m, article, signal) {
  const t0 = performance.now();
  let first = 0, pieces = 0, usage = null, timings = null;
  let finish = '', ended = false, drawn = false;
  const draw = () => {
    drawn = false;
    const log = $('log'), low = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    fill(article, m, messages.length - 1);
    if (low) log.scrollTop = log.scrollHeight;
  };
  const soon = () => {
    if (!drawn) requestAnimationFrame(draw);
    drawn = true;
  };
  const r = await ask('v1/chat/completions', {
    method: 'POST', signal, headers: { 'Content-Type': 'application/json', ...headers() },
    body: JSON.stringify(body()),
  });
  if (!r.ok) throw await failure(r);
  for await (const e of events(r)) {
    if (e.comment) {
      m.progress = e.comment;
      soon();
      continue;
    }
    if (e.done) {
      ended = true;
      break;
    }
    if (e.error) throw new Error(e.error.message);
    usage = e.usage ?? usage;
    timings = e.timings ?? timings;
    const c = e.choices?.[0];
    if (!c) continue;
    finish = c.finish_reason ?? finish;
    takeDelta(m, c.delta ?? {});
    if (c.delta?.content || c.delta?.reasoning_content || c.delta?.tool_calls) {
      first ||= performance.now();
      pieces++;
    }
    soon();
  }
  if (!ended) throw new Error(CUT);
  const seconds = (performance.now() - first) / 1000, n = usage?.completion_tokens ?? pieces;
  m.stats = {
    prompt: usage?.prompt_tokens, tokens: n, cached: usage?.prompt_tokens_details?.cached_tokens,
    finish,
    ttft: first ? first - t0 : 0,
    tps: timings?.decode_tps ?? (n > 1 && seconds > 0 ? (n - 1) / seconds : 0),
  };
}

async function answer() {
  const m = { role: 'assistant', content: '', reasoning: '' };
  try {
    toolList();
    $('settings-error').textContent = '';
  } catch (e) {
    $('settings').open = true;
    $('settings-error').textContent = 'Tools: ' + e.message;
    return;
  }
  messages.push(m);
  running = new AbortController();
  busy(true);
  showAll();
  const article = $('log').lastElementChild;
  article.classList.add('busy');
  fill(article, m, messages.length - 1);
  try {
    await receive(m, article, running.signal);
  } catch (e) {
    if (e.name === 'AbortError') m.stats = { finish: 'stopped' };
    else m.error = e.message;
  }
  delete m.progress;
  running = null;
  busy(false);
  keep();
  showAll(true);
  if (!document.activeElement?.matches('textarea, input, select')) $('input').focus();
  if (m.error || $('model').className) whoIsThere(); // perhaps another model by now
}

// ---- what people do ----
function send() {
  const text = $('input').value;
  if (running || !text.trim()) return;
  messages.push({ role: 'user', content: text });
  $('input').value = '';
  grow();
  keep();
  answer();
}

function sendResults() {
  const last = messages[messages.length - 1];
  for (const c of last.calls) {
    messages.push({ role: 'tool', tool_call_id: c.id, content: c.result ?? '' });
  }
  keep();
  answer();
}

function regenerate() {
  if (running || !messages.length) return;
  if (messages[messages.length - 1].role === 'assistant') messages.pop();
  if (messages.length) answer();
}

function edit(i) {
  if (running) return;
  const article = $('log').children[i], box = document.createElement('textarea');
  box.value = messages[i].content;
  box.rows = Math.min(12, box.value.split('\n').length + 1);
  box.setAttribute('aria-label', 'edit message');
  const go = () => {
    if (!box.value.trim()) return;
    messages = messages.slice(0, i);
    messages.push({ role: 'user', content: box.value });
    keep();
    answer();
  };
  const leave = () => {
    showAll(true);
    $('input').focus();
  };
  box.addEventListener('keydown', (e) => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      go();
    } else if (e.key === 'Escape') {
      e.stopPropagation();
      leave();
    }
  });
  article.querySelector('.body').replaceChildren(box);
  article.querySelector('.foot').replaceChildren(button('Send', 'ask this instead', go),
                                                 button('Cancel', 'leave it', leave));
  box.focus();
}

function fresh() {
  if (running) return;
  messages = [];
  keep();
  showAll();
  $('input').focus();
}

function grow() {
  const t = $('input');
  t.rows = Math.min(10, Math.max(2, t.value.split('\n').length));
}

function view(name) {
  for (const v of ['chat', 'live']) {
    $('view-' + v).hidden = v !== name;
    $('tab-' + v).setAttribute('aria-selected', String(v === name));
    $('tab-' + v).tabIndex = v === name ? 0 : -1;
  }
  if (name === 'live') live.start();
  else live.stop();
}

function theme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  try {
    localStorage.setItem('sluice.theme', document.documentElement.dataset.theme);
  } catch { /* not kept */ }
}

async function whoIsThere() {
  try {
    const r = await ask('v1/models', { headers: headers() });
    if (!r.ok) throw await failure(r);
    model = (await r.json()).data[0].id;
    $('model').textContent = $('model').title = model;
    $('model').className = '';
  } catch (e) {
    $('model').textContent = e.message;
    $('model').className = 'error';
  }
}

const live = new Live($('charts'), $('live-state'), headers);
try {
  const t = localStorage.getItem('sluice.theme');
  if (t === 'dark' || t === 'light') document.documentElement.dataset.theme = t;
} catch { /* the system's */ }
recall();
showAll();
whoIsThere();
$('compose').addEventListener('submit', (e) => {
  e.preventDefault();
  send();
});
$('input').addEventListener('input', grow);
$('input').addEventListener('keydown', (e) => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    send();
  }
});
document.addEventListener('keydown', (e) => {
  if (e.key === 'Escape' && running) running.abort();
  if (e.altKey && e.key.toLowerCase() === 'r') regenerate();
  if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === 'o') {
    e.preventDefault();
    fresh();
  }
});
$('stop').addEventListener('click', () => running?.abort());
$('fresh').addEventListener('click', fresh);
$('theme').addEventListener('click', theme);
$('settings').addEventListener('change', keepSettings);
addEventListener('pagehide', () => { // what of an answer is there
  if (!running) return;
  messages[messages.length - 1].stats = { finish: 'stopped' };
  keep();
});
$('key').addEventListener('change', whoIsThere);
for (const v of ['chat', 'live']) {
  $('tab-' + v).addEventListener('click', () => view(v));
  $('tab-' + v).addEventListener('keydown', (e) => {
    if (e.key === 'ArrowLeft' || e.key === 'ArrowRight') {
      const other = v === 'chat' ? 'live' : 'chat';
      view(other);
      $('tab-' + other).focus();
    }
  });
}
