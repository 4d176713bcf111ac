// view.js - one turn of a chat on the page. A turn's view reads its message and shows it; what buttons do is decided in app.js,
// which passes `acts`: {retry, go_on, remove, edit, curl, use_key}.

const FINISHES = {
  length: 'cut at the token limit', content_filter: 'held back by the content filter', tool_calls: 'ended with a tool call',
};
const plural = (n, word) => format_count(n) + ' ' + word + (n === 1 ? '' : 's');

// The last line of the thoughts so far, without marks: what the model is at right now. A line just begun says too little yet.
function tail_of(reasoning) {
  const lines = reasoning.slice(-600).split('\n').filter((line) => /[\p{L}\p{N}]/u.test(line));
  const line = lines.length > 1 && lines.at(-1).length < 24 ? lines.at(-2) : lines.at(-1) ?? '';
  return line.replace(/[*_`#>|]+/g, '').trim().slice(-220);
}

class UserTurn {
  constructor(message, acts) {
    this.message = message;
    this.acts = acts;
    this.element = h('article', {class: 'turn user', 'aria-label': 'You'});
    this.show();
  }

  show() {
    const {text, images} = this.message;
    const thumbs = (images ?? []).map((url, i) => h('img', {src: url, alt: 'Picture ' + (i + 1)}));
    this.element.classList.remove('editing');
    this.element.replaceChildren(
      h('div', {class: 'bubble'}, thumbs.length ? h('div', {class: 'thumbs'}, ...thumbs) : null,
        h('div', {class: 'said', dir: 'auto'}, text)),
      h('div', {class: 'foot'}, h('div', {class: 'actions'},
        icon_button('edit', 'Edit message', () => this.edit()),
        icon_button('copy', 'Copy message', (event) => copy_text(text, event.currentTarget)),
        icon_button('trash', 'Delete message and answer', () => this.acts.remove(this.message)))));
  }

  edit() {
    const area = h('textarea', {dir: 'auto', 'aria-label': 'Edit message'});
    area.value = this.message.text;
    const leave = () => {
      this.show();
      this.element.querySelector('.actions button').focus();
    };
    const save = () => {
      if (area.value.trim() || this.message.images?.length) this.acts.edit(this.message, area.value);
    };
    area.addEventListener('keydown', (event) => {
      if (event.isComposing) return;
      if (event.key === 'Escape') {
        event.stopPropagation();
        leave();
      } else if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        save();
      }
    });
    this.element.classList.add('editing');
    this.element.replaceChildren(h('div', {class: 'edit'}, area, h('div', {class: 'row'},
      h('button', {type: 'button', class: 'plain', onclick: leave}, 'Cancel'),
      h('button', {type: 'button', class: 'solid', onclick: save}, 'Send'))));
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}

class AnswerTurn {
  constructor(message, acts) {
    this.message = message;
    this.acts = acts;
    this.think_text = h('div', {class: 'md'});
    this.what = h('span', {class: 'what'});
    this.tail = h('span', {class: 'tail', dir: 'auto'});
    this.think = h('details', {class: 'think', hidden: true, ontoggle: () => this.show_thoughts()},
      h('summary', {}, h('span', {class: 'mark'}, icon('chevron')), this.what, this.tail), this.think_text);
    this.waiting = h('div', {class: 'waiting', hidden: true});
    this.body = h('div', {class: 'md'});
    this.after = h('div');
    this.element = h('article', {class: 'turn answer', 'aria-label': 'Answer'}, this.think, this.waiting, this.body, this.after);
    this.markdown = new MarkdownView(this.body);
    this.thoughts = new MarkdownView(this.think_text);
    this.scheduled = false;
    this.show();
  }

  // Many tokens may come in one frame and a long answer may take longer than a frame to lay out: one update per frame, and
  // a pause of twice the time that the last update took.
  soon(after_show) {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => requestAnimationFrame(() => {
      this.scheduled = false;
      const begin = performance.now();
      this.show();
      after_show();
      this.pause = Math.min(500, 2 * (performance.now() - begin) - 8);
    }), this.pause > 0 ? this.pause : 0);
  }

  show() {
    const {text, reasoning, live} = this.message;
    this.element.classList.toggle('live', Boolean(live && text));
    this.element.setAttribute('aria-busy', String(Boolean(live)));
    this.waiting.hidden = !(live && !text && !reasoning);
    this.markdown.set(text, Boolean(live));
    this.think.hidden = !reasoning;
    const thinking = Boolean(live && !text);
    this.think.toggleAttribute('data-live', thinking);
    this.tail.textContent = thinking ? tail_of(reasoning) : '';
    this.show_thoughts();
    this.tick();
    if (!live) this.show_foot();
    else if (this.after.firstChild?.className !== 'foot live-foot') {
      this.live_figures = h('span', {class: 'figures'});
      this.after.replaceChildren(h('div', {class: 'foot live-foot'}, this.live_figures));
      this.tick();
    }
  }

  // What changes with time alone.
  tick() {
    const {live, text, reasoning, ms, usage, queued} = this.message;
    const now = live ? (performance.now() - live.begin) : 0;
    if (!this.waiting.hidden) {
      this.waiting.textContent = (queued ? 'In the queue ' : 'Waiting ') + (now >= 1000 ? format_seconds(now / 1000) : '');
    }
    if (reasoning) {
      const tokens = usage?.completion_tokens_details?.reasoning_tokens;
      const seconds = (live && !text ? now - (ms.first ?? now) : ms.think ?? 0) / 1000;
      this.what.textContent = live && !text ? 'Thinking ' + format_seconds(seconds)
        : 'Thought' + (seconds >= 0.05 ? ' for ' + format_seconds(seconds) : '') + (tokens ? ', ' + plural(tokens, 'token') : '');
    }
    if (live && this.live_figures) {
      const pieces = text || reasoning ? [format_seconds(now / 1000), 'about ' + plural(live.pieces, 'token')] : [];
      this.live_figures.replaceChildren(...pieces.map((piece) => h('span', {}, piece)));
    }
  }

  // Thoughts are laid out only while they can be seen.
  show_thoughts() {
    const {live, text, reasoning} = this.message;
    if (this.think.open && reasoning) this.thoughts.set(reasoning, Boolean(live && !text));
  }

  show_foot() {
    const {message, acts} = this;
    const unfinished = message.finish === 'length' || message.stopped || message.error?.kind === 'cut';
    const can_go_on = unfinished && (message.text || message.reasoning);
    const buttons = [
      message.text ? icon_button('copy', 'Copy answer', (event) => copy_text(message.text, event.currentTarget)) : null,
      message.error ? null : icon_button('retry', 'Answer again', () => acts.retry(message)),
      icon_button('terminal', 'Copy request as curl', () => acts.curl(message)),
      icon_button('trash', 'Delete answer', () => acts.remove(message)),
    ];
    const more = can_go_on ? h('button', {type: 'button', class: 'more', onclick: () => acts.go_on(message)}, 'Continue') : null;
    const foot = h('div', {class: 'foot'}, h('div', {class: 'actions'}, ...buttons.filter(Boolean)), message.error ? null : more, this.figures());
    const card = message.error ? fault_card(message.error, acts, message) : null;
    if (card && more) card.querySelector('.row').append(more);
    this.after.replaceChildren(...[card, foot].filter(Boolean));
  }

  figures() {
    const {usage, ms, finish, stopped, model, fingerprint} = this.message;
    const out = [];
    if (usage) {
      const n = usage.completion_tokens, cached = usage.prompt_tokens_details?.cached_tokens ?? usage.prompt_cache_hit_tokens;
      const span = (ms.last - ms.first) / 1000;
      const rate = (n - 1) / span;
      if (n > 1 && span > 0.005) out.push(h('span', {}, h('b', {}, rate.toFixed(rate < 100 ? 1 : 0)), ' tokens/s'));
      out.push(h('span', {}, plural(n, 'token')));
      if (ms.first !== undefined) out.push(h('span', {}, 'first after ' + format_seconds(ms.first / 1000)));
      const reused = cached ? ' (' + format_count(cached) + ' cached)' : '';
      out.push(h('span', {}, 'prompt ' + format_count(usage.prompt_tokens) + reused));
    }
    if (stopped) out.push(h('span', {}, 'stopped'));
    if (FINISHES[finish]) out.push(h('span', {}, FINISHES[finish]));
    return h('span', {class: 'figures', title: [model, fingerprint].filter(Boolean).join('\n')}, ...out);
  }
}

// What went wrong, and what can be done about it right there.
function fault_card(error, acts, message) {
  const {status, code, param, request_id} = error;
  const meta = [status && 'HTTP ' + status, code, param, request_id && 'request ' + request_id].filter(Boolean);
  const row = h('div', {class: 'row'});
  const card = h('div', {class: 'fault', role: 'alert'}, icon('warn'), h('strong', {}, error.title), h('p', {}, error.message),
    meta.length ? h('p', {class: 'meta'}, meta.join(' · ')) : null, row);
  if (error.kind === 'key') {
    const field = h('input', {type: 'password', 'aria-label': 'API key', placeholder: 'API key', autocomplete: 'off'});
    row.append(h('form', {class: 'row', onsubmit: (event) => {
      event.preventDefault();
      if (field.value.trim()) acts.use_key(field.value.trim(), message);
    }}, field, h('button', {class: 'solid'}, 'Use key and retry')));
    return card;
  }
  row.append(h('button', {type: 'button', class: 'solid', onclick: () => acts.retry(message)}, 'Retry'));
  if (error.retry_after) row.append(count_down(error));
  return card;
}

function count_down(error) {
  const note = h('span', {class: 'meta'});
  const until = (error.at ?? Date.now()) + error.retry_after * 1000;
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    note.textContent = left > 0 ? 'The server asks to wait ' + left + ' s' : '';
    if (left > 0 && note.isConnected) setTimeout(tick, 500);
  };
  tick();
  setTimeout(tick, 500);
  return note;
}
