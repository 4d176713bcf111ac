// app.js - scrolling, keys, the wiring of the page, and its start.

function follow(now = false) {
  if (now === true) stick = true;
  if (stick) log.scrollTop = log.scrollHeight;
  $('jump').hidden = stick;
}

// For browsers without field-sizing.
function grow() {
  if (CSS.supports('field-sizing', 'content')) return;
  prompt_field.style.height = 'auto';
  prompt_field.style.height = prompt_field.scrollHeight + 'px';
}

const is_narrow = () => matchMedia('(width < 52rem)').matches;
function close_side() {
  document.body.classList.remove('side-open');
  if (is_narrow()) $('menu').setAttribute('aria-expanded', 'false');
}
function toggle_side() {
  const name = is_narrow() ? 'side-open' : 'wide-closed';
  const on = document.body.classList.toggle(name);
  const open = is_narrow() ? on : !on;
  $('menu').setAttribute('aria-expanded', String(open));
  if (open && is_narrow()) $('new-chat').focus();
}

function on_key(event) {
  if (event.isComposing) return;
  const typing = /^(?:INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === 'k') {
    event.preventDefault();
    $('settings').close();
    new_chat();
  } else if (event.key === 'Escape' && !$('settings').open) {
    if (document.body.classList.contains('side-open')) {
      close_side();
      $('menu').focus();
    } else {
      stop_stream(chat);
    }
  } else if (event.key === '/' && !typing && !$('settings').open) {
    event.preventDefault();
    prompt_field.focus();
  }
}

function on_prompt_key(event) {
  if (event.isComposing) return;
  if (event.key === 'Enter' && !event.shiftKey && !matchMedia('(pointer: coarse)').matches) {
    event.preventDefault();
    send();
  } else if (event.key === 'ArrowUp' && !prompt_field.value && !streams.has(chat.id)) {
    const last = chat.messages.findLast((message) => message.role === 'user');
    if (!last) return;
    event.preventDefault();
    views.get(last).edit();
  }
}

function listen() {
  addEventListener('keydown', on_key);
  prompt_field.addEventListener('keydown', on_prompt_key);
  prompt_field.addEventListener('input', () => { grow(); show_state(); });
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    if (streams.has(chat.id)) stop_stream(chat);
    else send();
    prompt_field.focus();
  });
  let last_top = 0;
  log.addEventListener('scroll', () => {
    const near = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    if (near) stick = true;
    else if (log.scrollTop < last_top) stick = false;
    last_top = log.scrollTop;
    $('jump').hidden = stick;
  }, {passive: true});
  new ResizeObserver(() => follow()).observe(log);
  $('jump').addEventListener('click', () => { follow(true); prompt_field.focus(); });
  $('new-chat').addEventListener('click', new_chat);
  $('delete-all').addEventListener('click', delete_all);
  $('menu').addEventListener('click', toggle_side);
  $('side-close').addEventListener('click', () => { close_side(); $('menu').focus(); });
  $('scrim').addEventListener('click', close_side);
  $('open-settings').addEventListener('click', () => { show_settings(); $('settings').showModal(); });
  $('settings').addEventListener('click', (event) => { if (event.target === $('settings')) $('settings').close(); });
  $('model').addEventListener('change', () => { set('model', $('model').value); show_model(); });
  $('thinking').addEventListener('change', () => set('thinking', $('thinking').value));
  for (const name of ['system', 'temperature', 'top_p', 'max_tokens', 'seed']) {
    const field = $('s-' + name);
    field.addEventListener('input', () => { if (field.validity.valid) set(name, field.value); });
    field.addEventListener('keydown', (event) => { if (event.key === 'Enter' && field.tagName === 'INPUT') event.preventDefault(); });
  }
  const key_changed = () => {
    secret = $('s-key').value.trim();
    Store.set_key(secret, $('s-remember').checked);
  };
  $('s-key').addEventListener('input', key_changed);
  $('s-remember').addEventListener('change', key_changed);
  $('settings').addEventListener('close', () => { if (!models.length) load_models(); });
  document.querySelectorAll('[name=theme]').forEach((choice) => choice.addEventListener('change', () => {
    set('theme', choice.value);
    show_theme();
  }));
  $('reset').addEventListener('click', () => {
    for (const name of ['system', 'temperature', 'top_p', 'max_tokens', 'seed', 'thinking']) set(name, '');
    show_settings();
    show_model();
  });
  $('attach').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', async () => {
    await add_pictures([...$('file').files]);
    $('file').value = '';
    prompt_field.focus();
  });
  const pictures_in = (data) => [...(data?.files ?? [])].filter((file) => file.type.startsWith('image/'));
  prompt_field.addEventListener('paste', (event) => {
    const files = pictures_in(event.clipboardData);
    if (!files.length || $('attach').hidden) return;
    event.preventDefault();
    add_pictures(files);
  });
  for (const name of ['dragover', 'dragleave', 'drop']) {
    $('main').addEventListener(name, (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      $('composer').classList.toggle('drop', name === 'dragover');
      if (name === 'drop' && !$('attach').hidden) add_pictures(pictures_in(event.dataTransfer));
    });
  }
  addEventListener('storage', (event) => { if (event.key === 'deepinfer.chats') show_list(); });
  addEventListener('hashchange', () => choose_chat(location.hash.slice(1)));
  addEventListener('online', () => { if (!models.length) load_models(); });
  addEventListener('beforeunload', () => {
    leaving = true;
    setTimeout(() => { leaving = false; }, 3000);
  });
  addEventListener('pagehide', () => { for (const {chat: running} of streams.values()) save(running); });
  setInterval(() => { for (const {message} of streams.values()) views.get(message)?.tick(); }, 200);
}

function start() {
  show_theme();
  if (/Mac|iPhone|iPad/.test(navigator.platform)) {
    document.querySelectorAll('kbd').forEach((key) => { key.textContent = key.textContent.replace('Ctrl ', '⌘ '); });
  }
  const wanted = /^#[0-9a-f]{16}$/.test(location.hash) ? load_chat(location.hash.slice(1)) : undefined;
  if (wanted) chat = wanted;
  listen();
  show_chat();
  show_list();
  $('menu').setAttribute('aria-expanded', String(!is_narrow()));
  load_models();
  prompt_field.focus();
}
start();
