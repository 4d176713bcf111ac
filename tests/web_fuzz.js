// For tests/web_test.py, run on an empty page with the markdown functions: random texts shown piece by piece, for some seconds. Returns
// how many, or what went wrong: a node that may not be, a text that ends otherwise than when shown at once, time out of proportion.
(seconds) => {
  const PIECES = ['*', '**', '_', '~~', '`', '``', '```\n', '~~~', '[', ']', '](', ')', '![', '<', '>', '> ', '\n', '\n\n', '- ', '  - ',
    '1. ', '# ', '|', '|--|', '---', '\\', '\\(', '\\)', '&lt;', '&', ' ', '    ', '\t', '\r\n', 'word', '中文', 'مرحبا', '😀',
    'https://a.example/b', 'javascript:x', '<script>', '<br>', '[ ] ', '$$', '"', "'", '\0', '\ud800'];
  const ALLOWED = new Set(('A BLOCKQUOTE BR BUTTON CODE DEL DIV EM FIGCAPTION FIGURE H3 H4 H5 H6 HR INPUT LI OL P PRE SPAN STRONG SVG TABLE ' +
    'TBODY TD TH THEAD TR UL USE').split(' '));
  let seed = 1;
  const random = (n) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor(seed / 65536) % n;
  };
  const is_wrong = (e) => !ALLOWED.has(e.tagName.toUpperCase()) || (e.tagName === 'A' && e.href && !/^https?:/.test(e.href));
  const root = document.body, end = performance.now() + 1000 * seconds;
  let rounds = 0;
  for (; performance.now() < end; rounds++) {
    let text = '';
    root.replaceChildren();
    const view = new MarkdownView(root), whole = new MarkdownView(document.createElement('div'));
    for (let n = 1 + random(40); n > 0; n--) {
      text += PIECES[random(PIECES.length)];
      if (random(3) === 0) view.set(text, true);
    }
    view.set(text, false);
    whole.set(text, false);
    const wrong = [...root.querySelectorAll('*')].find(is_wrong);
    if (wrong) return 'made ' + wrong.outerHTML + ' of ' + JSON.stringify(text);
    if (root.innerHTML !== whole.root.innerHTML) return 'grown differs from whole: ' + JSON.stringify(text);
  }
  for (const piece of PIECES) {
    for (const unit of [piece, piece + ' ']) {
      const begin = performance.now();
      new MarkdownView(document.createElement('div')).set(unit.repeat(30000 / unit.length), true);
      if (performance.now() - begin > 3000) return 'slow: ' + JSON.stringify(unit);
    }
  }
  return rounds;
}
