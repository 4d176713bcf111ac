// answering.js - requests and the buttons of a turn: who is being answered, and what retry, edit, delete and undo do.

// ---- requests -----------------------------------------------------------------------------------------------------

// What the settings add to a request; fields that are empty are left to the server.
function wire_settings() {
  const out = {model: current_model()?.id ?? settings.model};
  if (settings.thinking === 'off') out.thinking = {type: 'disabled'};
  else if (settings.thinking) Object.assign(out, {thinking: {type: 'enabled'}, reasoning_effort: settings.thinking});
  for (const name of ['temperature', 'top_p', 'max_tokens', 'seed']) {
    if (settings[name] !== '') out[name] = Number(settings[name]);
  }
  return out;
}

function wire_messages(messages, system, prefix) {
  const out = system.trim() ? [{role: 'system', content: system}] : [];
  for (const {role, text, images} of messages) {
    if (role === 'assistant') {
      if (text) out.push({role, content: text});
    } else if (images?.length) {
      const parts = images.map((url) => ({type: 'image_url', image_url: {url}}));
      out.push({role, content: text ? [...parts, {type: 'text', text}] : parts});
    } else {
      out.push({role, content: text});
    }
  }
  if (prefix) out.push({role: 'assistant', content: prefix.text, reasoning_content: prefix.reasoning || undefined, prefix: true});
  return out;
}

// The request that leads to `answer`; with `go_on`, the one that lengthens it.
function request_body(of_chat, answer, go_on) {
  const before = of_chat.messages.slice(0, of_chat.messages.indexOf(answer));
  const {system, ...rest} = answer.settings ?? {...wire_settings(), system: settings.system};
  const messages = wire_messages(before, system ?? '', go_on ? answer : undefined);
  return {...rest, messages, stream: true, stream_options: {include_usage: true}};
}

function begin_answer(of_chat, answer, go_on = false) {
  stop_stream(of_chat);
  const abort = new AbortController();
  Object.assign(answer, {live: {begin: performance.now(), pieces: 0}, ms: go_on ? {think: answer.ms.think} : {}, finish: '',
    stopped: false, error: undefined, usage: undefined, queued: false});
  streams.set(of_chat.id, {abort, message: answer, chat: of_chat});
  if (of_chat === chat) {
    show_view(answer);
    follow(true);
  }
  show_state();
  save(of_chat);
  announce('Answering');
  return run_stream(of_chat, answer, request_body(of_chat, answer, go_on), abort);
}

async function run_stream(of_chat, answer, body, abort) {
  const {live, ms} = answer;
  let saved = performance.now();
  try {
    await stream_chat(body, secret, abort.signal, (event) => {
      if (answer.live !== live) return;
      const now = performance.now() - live.begin;
      if (event.waiting) answer.queued = true;
      if (event.fingerprint) answer.fingerprint = event.fingerprint;
      if (event.usage) answer.usage = event.usage;
      if (event.finish) answer.finish = event.finish;
      if (event.reasoning || event.content) {
        ms.first ??= now;
        ms.last = now;
        live.pieces++;
        if (event.content && answer.reasoning && !answer.text) ms.think ??= now - ms.first;
        answer.reasoning += event.reasoning;
        answer.text += event.content;
      }
      views.get(answer)?.soon(follow);
      if (performance.now() - saved > 3000) {
        saved = performance.now();
        save(of_chat);
      }
    });
  } catch (problem) {
    if (answer.live !== live || leaving) return;
    if (problem.name === 'AbortError') answer.stopped = true;
    else answer.error = fault_of(problem);
  }
  end_answer(of_chat, answer);
}

function end_answer(of_chat, answer) {
  if (!answer.live) return;
  const {ms} = answer;
  if (answer.reasoning && !answer.text && ms.first !== undefined) ms.think ??= ms.last - ms.first;
  delete answer.live;
  streams.delete(of_chat.id);
  save(of_chat);
  views.get(answer)?.show();
  follow();
  show_state();
  announce(answer.error ? '' : answer.stopped ? 'Stopped' : 'Answer finished');
  if (!answer.error && !models.length) load_models();
}

// The answer keeps what has come; nothing that arrives later touches it.
function stop_stream(of_chat) {
  const stream = streams.get(of_chat.id);
  if (!stream) return;
  stream.message.stopped = true;
  stream.abort.abort();
  end_answer(of_chat, stream.message);
}

// ---- what buttons do ----------------------------------------------------------------------------------------------

const acts = {
  retry(answer) {
    change('Answer replaced', () => {
      const at = chat.messages.indexOf(answer);
      return {keep: chat.messages.slice(0, at), then: answer_next};
    }, !answer.error && Boolean(answer.text));
  },
  go_on(answer) { begin_answer(chat, answer, true); },
  edit(message, text) {
    change('Message changed', () => {
      const at = chat.messages.indexOf(message);
      return {keep: [...chat.messages.slice(0, at), {...message, text}], then: answer_next};
    });
  },
  remove(message) {
    change('Deleted', () => {
      const at = chat.messages.indexOf(message);
      const count = message.role === 'user' && chat.messages[at + 1]?.role === 'assistant' ? 2 : 1;
      return {keep: chat.messages.toSpliced(at, count)};
    });
  },
  curl(answer) {
    copy_text(as_curl(request_body(chat, answer), secret));
    toast(secret ? 'Copied. Set API_KEY before you run it.' : 'Copied as curl');
  },
  use_key(key, answer) {
    keep_key(key);
    acts.retry(answer);
  },
};

// Replaces the messages of the chat and offers to take it back.
function change(text, decide, undoable = true) {
  const changed = chat;
  stop_stream(changed);
  const before = changed.messages;
  const {keep, then} = decide();
  changed.messages = keep;
  if (keep[0]?.role === 'user') changed.title = title_of(keep[0].text);
  show_chat(!then);
  save(changed);
  if (undoable) {
    toast(text, () => {
      stop_stream(changed);
      changed.messages = before;
      save(changed);
      open_chat(changed);
    });
  }
  then?.();
  if (!then) prompt_field.focus();
}

function answer_next() {
  const answer = {role: 'assistant', text: '', reasoning: '', ms: {}, settings: {...wire_settings(), system: settings.system}};
  answer.model = answer.settings.model;
  chat.messages.push(answer);
  return begin_answer(chat, answer);
}

function title_of(text) {
  const line = text.trim().slice(0, 400).replace(/\s+/g, ' ');
  return (line.length > 80 ? line.slice(0, 79) + '…' : line) || 'Picture';
}

function send() {
  const text = prompt_field.value;
  if (streams.has(chat.id) || (!text.trim() && !draft_pictures.length)) return;
  const first = !chat.messages.length;
  chat.messages.push({role: 'user', text: text.trim(), images: draft_pictures.length ? draft_pictures : undefined});
  if (first) chat.title = title_of(text);
  prompt_field.value = '';
  draft_pictures = [];
  show_pictures();
  grow();
  if (first) show_chat();
  else show_view(chat.messages.at(-1));
  answer_next();
}
