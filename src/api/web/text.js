// SPDX-License-Identifier: Apache-2.0
// Text of a model to elements: paragraphs, code, lists, headings, emphasis. Only elements and text
// nodes are made, never HTML from text.

function inline(parent, text) {
  const rule = /(`+)([^`]+?)\1|\*\*([^*]+?)\*\*|\*([^*\s][^*]*?)\*/g;
  let at = 0;
  for (const m of text.matchAll(rule)) {
    parent.append(text.slice(at, m.index));
    const el = document.createElement(m[1] ? 'code' : m[3] !== undefined ? 'strong' : 'em');
    el.textContent = m[2] ?? m[3] ?? m[4];
    parent.append(el);
    at = m.index + m[0].length;
  }
  parent.append(text.slice(at));
}

function add(parent, tag, text) {
  const el = document.createElement(tag);
  if (text !== undefined) inline(el, text);
  parent.append(el);
  return el;
}

export function render(parent, text) {
  parent.replaceChildren();
  let para = [], list = null, code = null;
  const flush = () => {
    if (para.length) add(parent, 'p', para.join('\n'));
    para = [];
  };
  for (const line of text.split('\n')) {
    if (code) {
      if (/^\s*```\s*$/.test(line)) code = null;
      else code.textContent += (code.textContent ? '\n' : '') + line;
      continue;
    }
    const fence = /^\s*```\s*([\w+#.-]*)\s*$/.exec(line);
    const item = /^\s*(?:([-*+])|(\d+)[.)])\s+(.*)$/.exec(line);
    const head = /^(#{1,6})\s+(.*)$/.exec(line);
    if (fence) {
      flush();
      list = null;
      code = document.createElement('code');
      const pre = document.createElement('pre');
      if (fence[1]) pre.title = fence[1];
      pre.append(code);
      parent.append(pre);
    } else if (item) {
      flush();
      const tag = item[1] ? 'ul' : 'ol';
      if (!list || list.localName !== tag) {
        list = add(parent, tag);
        if (item[2] && item[2] !== '1') list.start = Number(item[2]);
      }
      add(list, 'li', item[3]);
    } else if (head) {
      flush();
      list = null;
      add(parent, 'h' + Math.min(4, head[1].length + 1), head[2]);
    } else if (!line.trim()) {
      flush();
      list = null;
    } else {
      list = null;
      para.push(line);
    }
  }
  flush();
}
