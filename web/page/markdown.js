// markdown.js - a model's text as DOM nodes.
//
// Promise: nodes are built, markup is never parsed: no text of a model can become an element, attribute or script beyond the
// ones created here; links lead to http and https only; nothing is loaded. Every step is linear in the text and nesting is
// bounded, so a megabyte in one line or ten thousand brackets cost time, not the page.
// `open`: the text is still coming, so what is begun at its very end (a fence, bold, a link) is shown as if it were closed.

const MAX_NESTING = 14;  // blocks within blocks, and inline nodes within inline nodes
const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const QUOTE = /^ {0,3}> ?/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const BEGUN = /^ {0,12}(?:[-*_`~#>+|]{1,3}|\d{1,3}[.)]) ?$/;  // a line that may yet become anything

const is_blank = (line) => !/\S/.test(line);
const indent_of = (line) => line.search(/[^ ]|$/);
const is_divider = (line) => line !== undefined && line.length < 4000 && line.includes('-') && DIVIDER.test(line);
const is_rule = (line) => line.length < 400 && RULE.test(line);

const starts_block = (line) => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || is_rule(line) ||
  /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line);

// Bars part cells, but not behind a backslash and not within code.
function row_cells(line) {
  const cells = [];
  let cell = '';
  const text = line.trim().replace(/^\|/, '');
  for (let i = 0; i < text.length && cells.length < 200; i++) {
    if (text[i] === '\\' && text[i + 1] === '|') cell += text[++i];
    else if (text[i] === '`' && text.indexOf('`', i + 1) > 0) {
      const end = text.indexOf('`', i + 1);
      cell += text.slice(i, end + 1);
      i = end;
    }
    else if (text[i] === '|') { cells.push(cell.trim()); cell = ''; }
    else cell += text[i];
  }
  if (cell.trim()) cells.push(cell.trim());
  return cells;
}

// Each function takes the lines and the place of its first one and returns [node, place after its last one].
const Blocks = {
  fence(lines, at, depth, open) {
    const [, mark, language] = FENCE.exec(lines[at]);
    const strip = indent_of(lines[at]);
    const body = [];
    let i = at + 1, closed = false;
    for (; i < lines.length && !closed; i++) {
      const trimmed = lines[i].length < 200 ? lines[i].trim() : '';
      closed = trimmed.length >= mark.length && trimmed === mark[0].repeat(trimmed.length) && indent_of(lines[i]) < 4;
      if (!closed) body.push(lines[i].slice(Math.min(strip, indent_of(lines[i]))));
    }
    if (open && !closed && body.length && /^ {0,3}[`~]{1,3}$/.test(body.at(-1))) body.pop();
    return [code_block(language, body.join('\n')), i];
  },

  heading(lines, at, depth, open) {
    const [all, marks] = HEADING.exec(lines[at]);
    let text = lines[at].slice(all.length).trim();
    const bare = text.replace(/#{1,400}$/, '');
    if (bare === '' || /\s$/.test(bare)) text = bare.trimEnd();
    // The page itself has levels 1 and 2.
    const tail = open && at === lines.length - 1;
    return [h('h' + Math.min(6, marks.length + 2), {class: 'h' + marks.length}, inline(text, tail)), at + 1];
  },

  quote(lines, at, depth, open) {
    const body = [];
    let i = at;
    for (; i < lines.length; i++) {
      if (QUOTE.test(lines[i])) body.push(lines[i].replace(QUOTE, ''));
      else if (is_blank(lines[i]) || starts_block(lines[i]) || is_blank(body.at(-1))) break;
      else body.push(lines[i]);
    }
    return [h('blockquote', {}, ...block_nodes(body, depth + 1, open && i === lines.length)), i];
  },

  list(lines, at, depth, open) {
    const first = ITEM.exec(lines[at]);
    const base = first[1].length, kind = first[2].at(-1), ordered = first[2].length > 1;
    const items = [];
    let i = at, loose = false, gap = false;
    while (i < lines.length) {
      const found = ITEM.exec(lines[i]);
      if (!found || found[2].at(-1) !== kind || found[1].length >= base + 2 || (i > at && is_rule(lines[i]))) break;
      if (gap) loose = true;
      gap = false;
      const offset = found[3].length > 4 || !found[3] ? found[1].length + found[2].length + 1 : found[0].length;
      const body = [lines[i++].slice(offset)];
      for (; i < lines.length; i++) {
        if (is_blank(lines[i])) { gap = true; body.push(''); continue; }
        const indent = indent_of(lines[i]);
        if (indent >= Math.min(offset, base + 2)) {
          if (gap && indent >= offset && !ITEM.test(lines[i])) loose = true;
        } else if (gap || ITEM.test(lines[i]) || starts_block(lines[i])) break;
        gap = false;
        body.push(lines[i].slice(Math.min(offset, indent)));
      }
      items.push(body);
    }
    const list = h(ordered ? 'ol' : 'ul', {start: ordered && first[2] !== '1' + kind ? parseInt(first[2], 10) : undefined});
    const tail = open && i === lines.length ? items.at(-1) : undefined;
    list.append(...items.map((body) => this.item(body, depth, body === tail, loose)));
    return [list, i];
  },

  item(body, depth, open, loose) {
    const task = /^\[([ xX])\][ \t]+/.exec(body[0]);
    if (task) body[0] = body[0].slice(task[0].length);
    const item = h('li', {class: task ? 'task' : undefined});
    if (task) {
      const done = task[1] !== ' ';
      item.append(h('input', {type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'done' : 'open'}));
    }
    for (const node of block_nodes(body, depth + 1, open)) {
      if (node.nodeName === 'P' && !loose) item.append(...node.childNodes);
      else item.append(node);
    }
    return item;
  },

  table(lines, at, depth, open) {
    const head = row_cells(lines[at]);
    const sides = row_cells(lines[at + 1] ?? '').map((cell) =>
      cell.startsWith(':') && cell.endsWith(':') && cell.length > 1 ? 'center' : cell.endsWith(':') ? 'end' : undefined);
    const cell = (tag, text, column, tail) => h(tag, {dir: 'auto', class: sides[column] && 'to-' + sides[column],
      scope: tag === 'th' ? 'col' : undefined}, inline(text ?? '', tail));
    const body = h('tbody');
    let i = at + 2;
    for (; i < lines.length && !is_blank(lines[i]) && (lines[i].includes('|') || !starts_block(lines[i])); i++) {
      const cells = row_cells(lines[i]);
      const tail = open && i === lines.length - 1;
      body.append(h('tr', {}, ...head.map((_, column) => cell('td', cells[column], column, tail && column === cells.length - 1))));
    }
    const titles = head.map((text, column) => cell('th', text, column, open && i <= at + 2));
    const table = h('table', {}, h('thead', {}, h('tr', {}, ...titles)), body);
    return [h('div', {class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table'}, table), Math.min(i, lines.length)];
  },

  paragraph(lines, at, depth, open) {
    let i = at + 1;
    const ends = (line) => is_blank(line) || (depth < MAX_NESTING && (starts_block(line) || is_table(lines, i, open)));
    while (i < lines.length && !ends(lines[i])) i++;
    const text = lines.slice(at, i).map((line) => line.trim()).join('\n');
    const display = text.length < 4000 && /^(?:\$\$([^]+?)\$\$|\\\[([^]+?)\\\])$/.exec(text);
    if (display) return [h('p', {class: 'math', dir: 'ltr'}, (display[1] ?? display[2]).trim()), i];
    return [h('p', {}, inline(text, open && i === lines.length)), i];
  },
};

// A header row and its divider; while the text is coming, a header row whose divider has not come yet.
function is_table(lines, at, open) {
  const line = lines[at];
  if (!line.includes('|') || line.length > 20000) return false;
  const begun = open && line.trim().startsWith('|') && /[^ |:-]/.test(line);
  if (begun && at === lines.length - 2 && /^[ |:-]*$/.test(lines[at + 1])) return true;
  if (is_divider(lines[at + 1]) && lines[at + 1].includes('|')) return row_cells(line).length === row_cells(lines[at + 1]).length;
  return begun && at === lines.length - 1;
}

function block_at(lines, at, depth, open) {
  const line = lines[at];
  let name = 'paragraph';
  if (depth >= MAX_NESTING) name = 'paragraph';
  else if (FENCE.test(line)) name = 'fence';
  else if (HEADING.test(line)) name = 'heading';
  else if (is_rule(line)) return [h('hr'), at + 1];
  else if (QUOTE.test(line)) name = 'quote';
  else if (ITEM.test(line)) name = 'list';
  else if (is_table(lines, at, open)) name = 'table';
  return Blocks[name](lines, at, depth, open);
}

// [{at, node}] of the blocks in `lines`.
function blocks_of(lines, depth, open) {
  const out = [];
  for (let at = 0; at < lines.length;) {
    if (is_blank(lines[at])) { at++; continue; }
    const [node, next] = block_at(lines, at, depth, open);
    if (depth === 0 && node.nodeName !== 'FIGURE') node.setAttribute('dir', 'auto');
    out.push({at, node});
    at = next;
  }
  return out;
}
const block_nodes = (lines, depth, open) => blocks_of(lines, depth, open).map((block) => block.node);

const plain_line = (line) => line.replace(/\r$/, '').replace(/^[ \t]{1,400}/, (space) => space.replace(/\t/g, '    '));

// Shows a growing text. While it is open only its last block is built again; what was guessed too early about an unfinished
// line is put right at the end, block by block, so that a reader's selection in the others stays.
class MarkdownView {
  constructor(root) {
    this.root = root;
    this.text = '';
    this.last = {from: 0, node: null};
  }

  set(text, open) {
    if (text === this.text && open === this.open) return;
    if (!text.startsWith(this.text) || (open && this.open === false)) {
      this.root.replaceChildren();
      this.last = {from: 0, node: null};
    }
    this.open = open;
    this.text = text;
    if (open) this.grow(text);
    else this.settle(text);
  }

  grow(text) {
    const {from, node} = this.last;
    const raw = text.slice(from).split('\n');
    if (BEGUN.test(raw.at(-1))) raw.pop();
    const blocks = blocks_of(raw.map(plain_line), 0, true);
    if (node) node.remove();
    this.root.append(...blocks.map((block) => block.node));
    const final = blocks.at(-1);
    if (!final) return;
    let offset = from;
    for (let i = 0; i < final.at; i++) offset += raw[i].length + 1;
    this.last = {from: offset, node: final.node};
  }

  settle(text) {
    const nodes = block_nodes(text.split('\n').map(plain_line), 0, false);
    const old = [...this.root.childNodes];
    nodes.forEach((node, i) => {
      if (!old[i]) this.root.append(node);
      else if (!old[i].isEqualNode(node)) old[i].replaceWith(node);
    });
    old.slice(nodes.length).forEach((node) => node.remove());
  }
}
