// SPDX-License-Identifier: Apache-2.0
// The live figures: /metrics once a second while the view is shown, drawn as small line charts of
// the last two minutes.

const KEEP = 120;
const SVG = 'http://www.w3.org/2000/svg';

export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split('\n')) {
    const m = /^([A-Za-z_:][\w:]*)(\{[^}]*\})?\s+(\S+)/.exec(line);
    if (!m || /[{,]le="/.test(m[2] ?? '')) continue;
    out.set(m[1], (out.get(m[1]) ?? 0) + Number(m[3]));
  }
  return out;
}

const HEAT = /^sluice:expert_heat_tokens_total\{.*layers="([\d-]+)",experts="([\d-]+)"\}\s+(\S+)/;

// The counts of the heat map: a row of cells for each group of layers.
export function parseHeat(text) {
  const rows = new Map();
  for (const line of text.split('\n')) {
    const m = HEAT.exec(line);
    if (!m) continue;
    if (!rows.has(m[1])) rows.set(m[1], []);
    rows.get(m[1]).push({ experts: m[2], n: Number(m[3]) });
  }
  return rows;
}

// name, unit, and from two samples (now, before, seconds between) one or two values; null = nothing
// to show yet.
const rate = (name) => (a, b, dt) => (
  a.has(name) && b ? Math.max(0, a.get(name) - b.get(name)) / dt : null);
const level = (name, scale = 1) => (a) => (a.has(name) ? a.get(name) * scale : null);
const meanOf = (name, scale) => (a, b) => {
  if (!b || !a.has(name + '_count')) return null;
  const n = a.get(name + '_count') - b.get(name + '_count');
  return n > 0 ? ((a.get(name + '_sum') - b.get(name + '_sum')) / n) * scale : null;
};
const share = (part, whole) => (a, b) => {
  if (!b || !a.has(whole)) return null;
  const n = a.get(whole) - b.get(whole);
  return n > 0 ? (100 * (a.get(part) - b.get(part))) / n : null;
};
export const CHARTS = [
  { id: 'tps', title: 'Tokens per second', unit: 'tok/s', names: ['answers', 'prompts'],
    of: [rate('vllm:generation_tokens_total'), rate('vllm:prompt_tokens_total')] },
  { id: 'ttft', title: 'Time to first token', unit: 'ms',
    names: ['mean'], hold: true, of: [meanOf('vllm:time_to_first_token_seconds', 1000)] },
  { id: 'queue', title: 'Requests', unit: '', names: ['running', 'waiting'],
    of: [level('vllm:num_requests_running'), level('vllm:num_requests_waiting')] },
  { id: 'kv', title: 'KV cache in use', unit: '%',
    max: 100, names: ['used'], of: [level('vllm:kv_cache_usage_perc', 100)] },
  { id: 'hits', title: 'Prompt tokens from the prefix cache', unit: '%', max: 100, hold: true,
    names: ['hits'],
    of: [share('vllm:prefix_cache_hits_total', 'vllm:prefix_cache_queries_total')] },
  { id: 'roofline', title: 'Share of the memory\'s speed',
    unit: '%', max: 100, names: ['of read bandwidth'], of: [level('sluice:roofline_ratio', 100)] },
];

// fetch, which has other words in every browser where there is no server.
export async function ask(path, options) {
  try {
    return await fetch(path, options);
  } catch (e) {
    throw e.name === 'AbortError' ? e : new Error('The server can not be reached.');
  }
}

function el(tag, attrs = {}, ns = null) {
  const e = ns ? document.createElementNS(ns, tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  return e;
}

class Chart {
  constructor(spec) {
    this.spec = spec;
    this.data = spec.of.map(() => []);
    this.figure = el('figure', { id: 'chart-' + spec.id });
    const caption = el('figcaption');
    caption.append(spec.title);
    this.now = el('b');
    caption.append(this.now);
    this.svg = el('svg', { class: 'chart', viewBox: `0 0 ${KEEP - 1} 100`,
      preserveAspectRatio: 'none', role: 'img', 'aria-label': spec.title }, SVG);
    for (const y of [1, 50, 99]) {
      this.svg.append(el('line', { x1: 0, x2: KEEP - 1, y1: y, y2: y }, SVG));
    }
    this.paths = spec.of.map((_, i) => {
      const p = el('path', { class: i ? 'second' : 'first' }, SVG);
      this.svg.append(p);
      return p;
    });
    this.legend = el('div', { class: 'legend' });
    this.figure.append(caption, this.svg, this.legend);
  }

  push(a, b, dt) {
    this.spec.of.forEach((f, i) => {
      const d = this.data[i];
      let v = f(a, b, dt);
      if (v === null && this.spec.hold && d.length) v = d[d.length - 1];
      d.push(v);
      if (d.length > KEEP) d.shift();
    });
    this.draw();
  }

  draw() {
    const all = this.data.flat().filter((v) => v !== null);
    const top = this.spec.max ?? (Math.max(...all, 0) * 1.1 || 1);
    const show = (v) => (v === null || v === undefined ? '–'
      : v >= 100 ? v.toFixed(0) : v.toFixed(1));
    this.data.forEach((d, i) => {
      let path = '', pen = 'M';
      d.forEach((v, k) => {
        if (v === null) {
          pen = 'M';
          return;
        }
        path += `${pen}${KEEP - d.length + k} ${(99 - (98 * Math.min(v, top)) / top).toFixed(2)}`;
        pen = 'L';
      });
      this.paths[i].setAttribute('d', path);
    });
    const last = this.data.map((d) => show(d[d.length - 1]));
    this.now.textContent = last.join(' / ') + ' ' + this.spec.unit;
    this.legend.replaceChildren(this.spec.names.join(' / '),
                                ` 0 to ${(show(top) + ' ' + this.spec.unit).trim()}, two minutes`);
  }
}

// Which experts were chosen in the last two minutes: a cell is as dark as its share of its row.
class Heat {
  constructor() {
    this.figure = el('figure', { id: 'chart-heat', hidden: '' });
    const caption = el('figcaption');
    caption.append('Experts chosen, by layer');
    this.now = el('b');
    caption.append(this.now);
    this.svg = el('svg', { class: 'chart', preserveAspectRatio: 'none', role: 'img',
      'aria-label': 'Experts chosen, by layer' }, SVG);
    this.legend = el('div', { class: 'legend' });
    this.figure.append(caption, this.svg, this.legend);
    this.data = [];
  }

  push(rows) {
    this.data.push(rows);
    if (this.data.length > KEEP) this.data.shift();
    this.figure.hidden = rows.size === 0;
    if (rows.size) this.draw(rows, this.data[0]);
  }

  draw(rows, before) {
    const cells = [];
    let most = 0, y = 0, width = 1;
    for (const [layers, row] of rows) {
      const old = this.data.length > 1 ? before.get(layers) : null;
      const n = row.map((c, x) => c.n - (old?.[x]?.n ?? 0));
      const mean = n.reduce((a, b) => a + b, 0) / n.length || 1;
      n.forEach((v, x) => {
        const r = el('rect', { x, y, width: 1, height: 1,
          'fill-opacity': Math.min(1, v / mean / 4).toFixed(3) }, SVG);
        const tip = el('title', {}, SVG);
        tip.append(`layers ${layers}, experts ${row[x].experts}: ${(v / mean).toFixed(2)} of the `
          + 'mean');
        r.append(tip);
        cells.push(r);
        most = Math.max(most, v / mean);
      });
      width = n.length;
      y++;
    }
    this.svg.setAttribute('viewBox', `0 0 ${width} ${y}`);
    this.svg.replaceChildren(...cells);
    this.now.textContent = most ? most.toFixed(1) + ' of the mean' : '–';
    this.legend.textContent = 'experts from left to right, layers downwards, two minutes';
  }
}

export class Live {
  constructor(box, state, headers) {
    this.state = state;
    this.headers = headers;
    this.charts = CHARTS.map((s) => new Chart(s));
    this.heat = new Heat();
    box.append(...this.charts.map((c) => c.figure), this.heat.figure);
    this.before = null;
    this.timer = 0;
  }

  start() {
    if (!this.timer) this.tick();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
  }

  async tick() {
    this.timer = setTimeout(() => this.tick(), 1000);
    if (document.hidden) return;
    try {
      const r = await ask('metrics', { headers: this.headers() });
      if (!r.ok) {
        const known = { 401: 'The server wants an API key: Chat, Settings.',
          404: 'The server runs with --metrics off.' };
        throw new Error(known[r.status] ?? 'HTTP ' + r.status);
      }
      const text = await r.text(), a = parseMetrics(text), t = performance.now();
      const dt = this.before ? (t - this.t) / 1000 : 1;
      for (const c of this.charts) c.push(a, this.before, dt);
      this.heat.push(parseHeat(text));
      this.before = a;
      this.t = t;
      this.state.textContent = '';
      this.state.className = '';
    } catch (e) {
      this.state.textContent = 'No figures: ' + e.message;
      this.state.className = 'error';
    }
  }
}
