// markdown_code.js - a block of code: its colours and its copy button.

const MAX_COLOURED = 24000;  // characters of a code block that get colours
const WORDS = new Set(('abstract and as assert async await auto bool boolean break case catch char class const constexpr continue def ' +
  'default defer del delete do done double echo elif else elseif end enum esac except export extends extern false final finally float ' +
  'fn for from func function global go goto if impl implements import in include inline instanceof int interface is lambda let local ' +
  'long match mod module mut namespace new nil none not null nullptr operator or package pass private protected pub public raise ' +
  'range readonly ref return select self short signed sizeof static string struct super switch template then this throw trait true ' +
  'True False None try type typedef typename typeof union unsigned use using var virtual void volatile where while with yield').split(' '));
const SQL_WORDS = new Set(('select from where group by order having limit insert into values update set delete create table join left ' +
  'right inner outer on as and or not null primary key distinct union all case when then else end').split(' '));
const HASH_COMMENTS = /^(?:py\w*|sh|bash|zsh|shell|console|ya?ml|toml|rb|ruby|r|perl|make|makefile|cmake|dockerfile|conf|ini|nim|elixir)$/;
const PLAIN = /^(?:|text|txt|plain|md|markdown|output|log|diff|html|xml|csv)$/;

// Comments, strings, numbers and common words: enough for the eye in most languages.
function coloured(code, language) {
  const lower = language.toLowerCase();
  const out = document.createDocumentFragment();
  if (PLAIN.test(lower) || code.length > MAX_COLOURED) {
    out.append(code);
    return out;
  }
  const sql = /sql/.test(lower);
  const comment = HASH_COMMENTS.test(lower) ? '#[^\\n]*' : sql || lower === 'lua' || lower === 'haskell' ? '--[^\\n]*'
    : '//[^\\n]*|/\\*[^]*?(?:\\*/|$)';
  const triple = /^py/.test(lower) ? '"""[^]*?(?:"""|$)|' : '';
  const pattern = new RegExp(`(${comment})|(${triple}"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\`?)|` +
    '(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)', 'g');
  const words = sql ? SQL_WORDS : WORDS;
  let at = 0;
  for (const found of code.matchAll(pattern)) {
    const kind = found[1] ? 'c' : found[2] ? 's' : found[3] ? 'n' : words.has(sql ? found[4].toLowerCase() : found[4]) ? 'k'
      : code[found.index + found[0].length] === '(' ? 'f' : '';
    if (!kind) continue;
    out.append(code.slice(at, found.index), h('span', {class: 't-' + kind}, found[0]));
    at = found.index + found[0].length;
  }
  out.append(code.slice(at));
  return out;
}

function code_block(language, code) {
  const body = h('code');
  body.append(coloured(code, language));
  const copy = h('button', {type: 'button', class: 'quiet copy', 'aria-label': 'Copy code', title: 'Copy code',
    onclick: (event) => copy_text(body.textContent, event.currentTarget)}, icon('copy'));
  return h('figure', {class: 'code', dir: 'ltr'}, h('figcaption', {}, h('span', {}, language.slice(0, 40)), copy),
    h('pre', {tabindex: '0', 'aria-label': (language || 'plain') + ' code'}, body));
}
