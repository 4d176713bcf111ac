// markdown_inline.js - what stands within a line: emphasis, code, links. Same promise as markdown.js.

const ENTITIES = {'&lt;': '<', '&gt;': '>', '&amp;': '&', '&quot;': '"', '&#39;': "'", '&apos;': "'", '&nbsp;': '\u00a0'};
// (address "title"): the address may hold pairs of parentheses; every length is bounded.
const LINK_TARGET = new RegExp('\\(\\s{0,3}<?([^\\s<>()]{0,2000}(?:\\([^\\s<>()]{0,500}\\)[^\\s<>()]{0,2000}){0,8})>?' +
  '(?:\\s{1,3}(?:"[^"\\n]{0,300}"|\'[^\'\\n]{0,300}\'))?\\s{0,3}\\)', 'y');

// Only absolute addresses of the web; anything else is undefined and stays text.
function safe_address(text) {
  if (!/^https?:\/\//i.test(text)) return undefined;
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : undefined;
  } catch {
    return undefined;
  }
}

const link = (address, ...children) =>
  h('a', {href: address, title: address, target: '_blank', rel: 'noopener noreferrer nofollow'}, ...children);

// One pass from left to right. `items` is the finished row of nodes; delimiters and brackets that may still pair with a later
// one are remembered by their place in it, and pairing wraps everything behind that place.
class Inline {
  constructor(text, open) {
    this.text = text;
    this.open = open;
    this.items = [];     // {node, depth}
    this.openers = [];   // {at, mark, length, node}
    this.brackets = [];  // {at, image}
    this.missing = new Set();  // lengths of backtick runs known to have no partner ahead
  }

  put(node, depth = 0) { this.items.push({node, depth}); }
  say(text) { if (text) this.put(document.createTextNode(text)); }

  parse() {
    const special = /[\\`*_~[\]!<\n&]|https?:\/\//gi;
    let at = 0;
    for (;;) {
      special.lastIndex = at;
      const found = special.exec(this.text);
      this.say(this.text.slice(at, found ? found.index : undefined));
      if (!found) break;
      at = this.step(found.index, found[0]);
    }
    if (this.open) this.close_all();
    const out = document.createDocumentFragment();
    for (const item of this.items) out.append(item.node);
    return out;
  }

  // Handles what stands at `at`; returns where to go on.
  step(at, what) {
    const text = this.text;
    switch (what[0]) {
      case '\\': return this.escape(at);
      case '`': return this.code(at);
      case '*': case '_': case '~': return this.delimiter(at, what);
      case '!':
        if (text[at + 1] !== '[') break;
        this.brackets.push({at: this.items.length, image: true});
        this.say('![');
        return at + 2;
      case '[':
        this.brackets.push({at: this.items.length, image: false});
        break;
      case ']': return this.bracket(at);
      case '<': return this.angle(at);
      case '\n':
        this.put(h('br'));
        return at + 1;
      case '&': {
        const entity = /&(?:lt|gt|amp|quot|apos|nbsp|#39);/y;
        entity.lastIndex = at;
        const found = entity.exec(text);
        if (!found) break;
        this.say(ENTITIES[found[0]]);
        return at + found[0].length;
      }
      default: return this.address(at);
    }
    this.say(what);
    return at + what.length;
  }

  escape(at) {
    const next = this.text[at + 1];
    if (next === '(' || next === '[') {  // TeX: shown as it was written, no emphasis inside
      const length = this.text.slice(at + 2, at + 2000).indexOf(next === '(' ? '\\)' : '\\]');
      if (length >= 0) {
        this.put(h('span', {class: 'math'}, this.text.slice(at + 2, at + 2 + length).trim()));
        return at + length + 4;
      }
    }
    if (next === '\n') {
      this.put(h('br'));
      return at + 2;
    }
    const escaped = next !== undefined && /[!-/:-@[-`{-~]/.test(next);
    this.say(escaped ? next : '\\');
    return at + (escaped ? 2 : 1);
  }

  code(at) {
    let length = 1;
    while (this.text[at + length] === '`') length++;
    const from = at + length;
    const end = length > 32 || this.missing.has(length) ? -1 : this.closing_ticks(from, length);
    if (end < 0) {
      this.missing.add(length);
      if (this.open && length <= 2 && from < this.text.length) {
        this.put(h('code', {}, this.text.slice(from)));
        return this.text.length;
      }
      this.say(this.text.slice(at, from));
      return from;
    }
    let body = this.text.slice(from, end).replace(/\n/g, ' ');
    if (body.startsWith(' ') && body.endsWith(' ') && body.trim()) body = body.slice(1, -1);
    this.put(h('code', {}, body));
    return end + length;
  }

  closing_ticks(from, length) {
    const runs = /`+/g;
    runs.lastIndex = from;
    for (let run; (run = runs.exec(this.text));) {
      if (run[0].length === length) return run.index;
    }
    return -1;
  }

  // Star, underscore, tilde. Looser than CommonMark beside punctuation, so that emphasis works in Chinese and Japanese.
  delimiter(at, mark) {
    let length = 1;
    while (this.text[at + length] === mark) length++;
    const end = at + length;
    const before = this.text[at - 1] ?? ' ', after = this.text[end] ?? ' ';
    const word = /[\p{L}\p{N}]/u;
    let can_open = !/\s/.test(after), can_close = !/\s/.test(before);
    if (mark === '_' && word.test(before)) can_open = false;
    if (mark === '_' && word.test(after)) can_close = false;
    if (length > 8 || (mark === '~' && length !== 2)) can_open = can_close = false;
    let left = length;
    while (can_close && left > 0) {
      const used = this.close(mark, left);
      if (!used) break;
      left -= used;
    }
    if (left > 0) {
      const node = document.createTextNode(mark.repeat(left));
      if (can_open || (this.open && end === this.text.length && length === left)) {
        this.openers.push({at: this.items.length, mark, length: left, node});
      }
      this.put(node);
    }
    return end;
  }

  // Wraps what lies behind the nearest opener of `mark`; returns how many characters of the closer that took, or 0.
  close(mark, left) {
    for (let i = this.openers.length - 1, tries = 0; i >= 0 && tries < 40; i--, tries++) {
      const opener = this.openers[i];
      if (opener.mark !== mark || opener.at === this.items.length - 1) continue;
      this.openers.length = i + 1;
      const used = Math.min(2, opener.length, left);
      if (mark === '~' && used < 2) return 0;
      if (!this.wrap(opener, used)) return 0;
      if (opener.length === 0) this.openers.pop();
      return used;
    }
    return 0;
  }

  wrap(opener, used) {
    const inner = this.items.slice(opener.at + 1);
    const depth = 1 + inner.reduce((most, item) => Math.max(most, item.depth), 0);
    if (depth > MAX_NESTING) {
      this.openers = [];
      return false;
    }
    const tag = opener.mark === '~' ? 'del' : used === 2 ? 'strong' : 'em';
    this.items.length = opener.at + 1;
    this.forget_brackets(opener.at);
    this.put(h(tag, {}, ...inner.map((item) => item.node)), depth);
    opener.length -= used;
    opener.node.data = opener.mark.repeat(opener.length);
    return true;
  }

  forget_brackets(from) {
    while (this.brackets.length && this.brackets.at(-1).at > from) this.brackets.pop();
  }

  bracket(at) {
    const opener = this.brackets.pop();
    const text = this.text;
    if (opener && text[at + 1] === '(') {
      LINK_TARGET.lastIndex = at + 1;
      const found = LINK_TARGET.exec(text);
      if (found) {
        const address = safe_address(found[1]);
        if (address && this.wrap_link(opener, address)) return at + 1 + found[0].length;
      } else if (this.open && text.length - at < 2000 && text.indexOf(')', at) < 0) {
        this.wrap_link(opener, undefined);  // its address is still coming
        return text.length;
      }
    }
    this.say(']');
    return at + 1;
  }

  wrap_link(opener, address) {
    const inner = this.items.slice(opener.at + 1);
    const depth = 1 + inner.reduce((most, item) => Math.max(most, item.depth), 0);
    if (depth > MAX_NESTING || inner.some((item) => item.node.nodeName === 'A')) {
      this.brackets = [];  // else each further one would look at the same row again
      return false;
    }
    this.items.length = opener.at;
    while (this.openers.length && this.openers.at(-1).at >= opener.at) this.openers.pop();
    if (!opener.image) this.brackets = [];
    const nodes = inner.map((item) => item.node);
    if (opener.image) nodes.unshift(icon('picture'), inner.length ? ' ' : ' picture');
    this.put(address ? link(address, ...nodes) : h('a', {}, ...nodes), depth);
    return true;
  }

  angle(at) {
    const found = /<(?:(https?:\/\/[^\s<>]{1,2000})|br ?\/?)>/iy;
    found.lastIndex = at;
    const match = found.exec(this.text);
    const address = match && match[1] && safe_address(match[1]);
    if (!match || (match[1] && !address)) {
      this.say('<');
      return at + 1;
    }
    this.put(address ? link(address, match[1]) : h('br'));
    return at + match[0].length;
  }

  address(at) {
    const url = /https?:\/\/[!-;=?-[\]_a-z~]{1,2000}/iy;
    url.lastIndex = at;
    let text = url.exec(this.text)?.[0];
    if (text) {
      text = text.replace(/[.,;:!?*_~'"\]]{1,40}$/, '');
      if (text.endsWith(')') && !text.includes('(')) text = text.slice(0, -1);
    }
    const inside_link = this.brackets.length > 0 && /\]\(/.test(this.text.slice(at, at + 2100));
    const address = text && !inside_link && !/\w/.test(this.text[at - 1] ?? '') ? safe_address(text) : undefined;
    if (!address) {
      this.say(this.text.slice(at, at + 4));
      return at + 4;
    }
    this.put(link(address, text));
    return at + text.length;
  }

  // The end of a text that is still coming: bold begun is bold, a lone delimiter at the very end is not shown.
  close_all() {
    for (const opener of this.openers.reverse()) {
      const last = opener.at === this.items.length - 1;
      if (last) opener.node.data = '';
      else if (opener.length >= 2 && !this.wrap(opener, 2)) break;
    }
  }
}

const inline = (text, open) => new Inline(text, open).parse();
