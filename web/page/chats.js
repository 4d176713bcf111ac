// chats.js - the state of the page, the chat that is shown and the list of chats.

const settings = Store.settings();
let secret = Store.key();
let chat = fresh_chat();
let models = [];
let draft_pictures = [];
let leaving = false;  // the page is being closed: its requests fail, its answers do not
let stick = true;  // follow the newest text; off as soon as the reader scrolls up
const streams = new Map();  // chat id -> {abort, message, chat}
const views = new Map();  // message -> view, of the chat that is shown
const log = $('log'), prompt_field = $('prompt');

function fresh_chat() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  const id = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return {id, title: '', updated: Date.now(), messages: []};
}

// ---- the chat -----------------------------------------------------------------------------------------------------

function show_view(message) {
  const view = message.role === 'user' ? new UserTurn(message, acts) : new AnswerTurn(message, acts);
  const old = views.get(message);
  if (old) old.element.replaceWith(view.element);
  else $('turns').append(view.element);
  views.set(message, view);
}

function show_chat(keep_place = false) {
  const place = log.scrollTop;
  views.clear();
  $('turns').replaceChildren();
  chat.messages.forEach(show_view);
  $('title').textContent = chat.title || 'New chat';
  document.title = chat.title ? chat.title + ' · deepinfer' : 'deepinfer';
  show_empty();
  if (keep_place) log.scrollTop = place;
  else follow(true);
  show_state();
}

function open_chat(next) {
  chat = next;
  history.replaceState(null, '', chat.messages.length ? '#' + chat.id : location.pathname + location.search);
  close_side();
  show_chat();
  show_list();
}

function new_chat() {
  if (chat.messages.length) open_chat(fresh_chat());
  close_side();
  prompt_field.focus();
}

// From storage: text is text, and an answer whose page was closed says so.
function load_chat(id) {
  const running = streams.get(id);
  if (running) return running.chat;
  const loaded = Store.chat(id);
  if (!loaded) return undefined;
  const is_message = ({text, role} = {}) => typeof text === 'string' && (role === 'user' || role === 'assistant');
  loaded.messages = loaded.messages.filter(is_message);
  for (const message of loaded.messages) {
    message.images = message.images?.filter((url) => /^data:image\//.test(url));
    if (message.role !== 'assistant') continue;
    message.reasoning ??= '';
    message.ms ??= {};
    if (!message.finish && !message.stopped && !message.error) {
      message.error = {kind: 'cut', title: 'The page was closed', message: 'The answer was not finished. What had arrived is kept.'};
    }
  }
  return loaded;
}

function save(of_chat) {
  if (!of_chat.messages.length) {
    Store.remove(of_chat.id);
    if (of_chat === chat) history.replaceState(null, '', location.pathname + location.search);
  } else {
    of_chat.updated = Date.now();
    Store.save({...of_chat, messages: of_chat.messages.map(({live, queued, ...message}) => message)});
    if (of_chat === chat) history.replaceState(null, '', '#' + of_chat.id);
  }
  show_list();
}

function show_list() {
  const day = new Date().setHours(0, 0, 0, 0);
  const group_of = (time) => time >= day ? 'Today' : time >= day - 6 * 864e5 ? 'This week' : 'Earlier';
  const groups = new Map();
  for (const entry of Store.chats()) {
    const name = group_of(entry.updated);
    if (!groups.has(name)) groups.set(name, h('ul'));
    const title = entry.title || 'Chat';
    groups.get(name).append(h('li', {class: entry.id === chat.id ? 'now' : undefined},
      h('button', {type: 'button', class: 'open' + (streams.has(entry.id) ? ' busy' : ''), title, dir: 'auto',
        'aria-current': entry.id === chat.id ? 'true' : undefined, onclick: () => choose_chat(entry.id)}, title),
      icon_button('trash', 'Delete chat: ' + title, () => delete_chat(entry.id))));
  }
  const focused = [...$('chats').querySelectorAll('button')].indexOf(document.activeElement);
  $('chats').replaceChildren(...[...groups].flatMap(([name, list]) => [h('h2', {}, name), list]));
  if (focused >= 0) $('chats').querySelectorAll('button')[focused]?.focus();
  $('delete-all').hidden = groups.size === 0;
  $('kept').textContent = {
    kept: 'Chats are kept in this browser only.',
    'no-pictures': 'Kept in this browser only; there is no room for all pictures.',
    memory: 'This browser keeps nothing: chats end with this tab.',
  }[Store.state];
}

function choose_chat(id) {
  if (id === chat.id) return close_side();
  const next = load_chat(id);
  if (next) open_chat(next);
  prompt_field.focus();
}

function delete_chat(id) {
  const gone = id === chat.id ? chat : load_chat(id);
  if (gone) stop_stream(gone);
  Store.remove(id);
  if (id === chat.id) open_chat(fresh_chat());
  show_list();
  if (gone) toast('Chat deleted', () => { save(gone); open_chat(gone); });
}

function delete_all() {
  const gone = Store.chats().map(({id}) => id === chat.id ? chat : load_chat(id)).filter(Boolean);
  gone.forEach(stop_stream);
  Store.remove_all();
  open_chat(fresh_chat());
  toast('All chats deleted', () => { gone.reverse().forEach((one) => Store.save(one)); show_list(); });
}

// ---- first screen -------------------------------------------------------------------------------------------------

const STARTS = ['Write a short story about a fox.', 'What is 12 + 30?', 'What is the capital of France?'];

// Depth lines, as on a chart of the sea.
function contours() {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '-300 -200 600 400');
  svg.setAttribute('class', 'contours');
  svg.setAttribute('aria-hidden', 'true');
  for (let ring = 1; ring <= 13; ring++) {
    const points = [];
    for (let i = 0; i < 96; i++) {
      const a = i / 96 * 2 * Math.PI, t = ring * 0.23;
      const r = ring * 21 * (1 + 0.13 * Math.sin(2 * a + t) + 0.07 * Math.sin(3 * a - 1.7 * t) + 0.035 * Math.sin(5 * a + 2.3 * t));
      points.push((1.35 * r * Math.cos(a) + ring * 2).toFixed(1) + ' ' + (r * Math.sin(a) * 0.86 - ring).toFixed(1));
    }
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', 'M' + points.join('L') + 'Z');
    path.setAttribute('opacity', (ring % 4 === 0 ? 0.4 : 0.19).toString());
    svg.append(path);
  }
  return svg;
}

function show_empty(fault) {
  if (chat.messages.length) return $('empty').replaceChildren();
  const parts = [contours(), h('h2', {}, 'What is on your mind?')];
  if (fault) {
    parts.push(fault_card(fault, {retry: load_models, use_key: keep_key}));
  } else {
    const window_size = current_model()?.context_window;
    const reads = window_size ? ' and reads up to ' + format_count(window_size) + ' tokens.' : '.';
    parts.push(h('p', {}, 'The model runs on this server' + reads),
      h('div', {class: 'starts'}, ...STARTS.map((text) => h('button', {type: 'button', onclick: () => {
        prompt_field.value = text;
        grow();
        send();
        prompt_field.focus();
      }}, text))));
  }
  $('empty').replaceChildren(...parts);
}

function keep_key(key) {
  secret = key;
  Store.set_key(key, Store.key_is_remembered());
  load_models();
}
