// store.js - chats and settings in this browser: one entry per chat, so that saving one does not write the others.
//
// Promise: nothing here throws; when the browser keeps nothing (private window, full, forbidden) the page works from memory and
// `Store.state` says so. Pictures are the first to go when space runs out. The key lives in this tab unless told otherwise.

const DEFAULTS = {model: '', thinking: '', temperature: '', top_p: '', max_tokens: '', seed: '', system: '', theme: ''};

const Store = {
  state: 'kept',  // kept | no-pictures | memory
  memory: new Map(),

  read(name, fallback) {
    try {
      const text = localStorage.getItem('deepinfer.' + name);
      if (text !== null) return JSON.parse(text);
    } catch { /* forbidden or damaged: as if absent */ }
    return this.memory.has(name) ? this.memory.get(name) : fallback;
  },

  write(name, value) {
    this.memory.delete(name);
    try {
      localStorage.setItem('deepinfer.' + name, JSON.stringify(value));
      return true;
    } catch {
      this.memory.set(name, value);
      return false;
    }
  },

  erase(name) {
    this.memory.delete(name);
    try { localStorage.removeItem('deepinfer.' + name); } catch { /* nothing was kept */ }
  },

  // Newest first.
  chats() {
    const list = this.read('chats', []);
    return (Array.isArray(list) ? list : []).filter((entry) => typeof entry?.id === 'string').sort((a, b) => b.updated - a.updated);
  },

  chat(id) {
    const chat = this.read('chat.' + id, undefined);
    return Array.isArray(chat?.messages) ? chat : undefined;
  },

  save(chat) {
    const entry = {id: chat.id, title: chat.title, updated: chat.updated};
    this.write('chats', [entry, ...this.chats().filter((other) => other.id !== chat.id)]);
    if (this.write('chat.' + chat.id, chat)) return;
    const bare = {...chat, messages: chat.messages.map((message) => ({...message, images: message.images?.length ? [] : undefined}))};
    this.state = this.write('chat.' + chat.id, bare) ? 'no-pictures' : 'memory';
  },

  remove(id) {
    this.write('chats', this.chats().filter((entry) => entry.id !== id));
    this.erase('chat.' + id);
  },

  remove_all() {
    for (const {id} of this.chats()) this.erase('chat.' + id);
    this.erase('chats');
  },

  settings() { return {...DEFAULTS, ...this.read('settings', {})}; },

  key() {
    try { return sessionStorage.getItem('deepinfer.key') ?? localStorage.getItem('deepinfer.key') ?? ''; } catch { return ''; }
  },
  key_is_remembered() {
    try { return localStorage.getItem('deepinfer.key') !== null; } catch { return false; }
  },
  set_key(key, remember) {
    try {
      sessionStorage.removeItem('deepinfer.key');
      localStorage.removeItem('deepinfer.key');
      if (key) (remember ? localStorage : sessionStorage).setItem('deepinfer.key', key);
    } catch { /* then it lasts as long as the field */ }
  },
};
