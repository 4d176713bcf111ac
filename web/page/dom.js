// dom.js - small helpers for building nodes. Text from outside only ever becomes text nodes.

const $ = (id) => document.getElementById(id);

// h('button', {class: 'x', onclick: f, 'aria-label': 'y'}, child, 'text', ...): an element with its children.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  use.setAttribute('href', '#i-' + name);
  svg.append(use);
  return svg;
}

const icon_button = (name, label, onclick, more = {}) =>
  h('button', {type: 'button', class: 'quiet', 'aria-label': label, title: label, onclick, ...more}, icon(name));

// Pages over plain HTTP from another host have no clipboard API; the old command still works there.
async function copy_text(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', {class: 'unseen', readonly: true});
    area.value = text;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    done = document.execCommand('copy');
    area.remove();
    before?.focus();
  }
  announce(done ? 'Copied' : 'Copying was refused by the browser');
  if (!button) return;
  const use = button.querySelector('use');
  use.setAttribute('href', done ? '#i-check' : '#i-close');
  setTimeout(() => use.setAttribute('href', '#i-copy'), 1400);
}

// Spoken by screen readers, seen by nobody.
function announce(text) {
  $('status').textContent = '';
  setTimeout(() => { $('status').textContent = text; }, 30);
}

let toast_timer = 0;
function toast(text, undo) {
  clearTimeout(toast_timer);
  const box = $('toast');
  const close = () => box.replaceChildren();
  box.replaceChildren(h('span', {}, text));
  if (undo) box.append(h('button', {type: 'button', onclick: () => { close(); undo(); }}, 'Undo'));
  toast_timer = setTimeout(close, undo ? 9000 : 4000);
}

const format_count = (n) => n.toLocaleString('en-US');
function format_seconds(seconds) {
  if (seconds >= 100) return Math.floor(seconds / 60) + ' min ' + Math.round(seconds % 60) + ' s';
  return seconds.toFixed(seconds < 1 ? 2 : 1) + ' s';
}
