// client.js - the wire: model list, streamed chat, and every way it can fail as one kind of error.
//
// Endpoints (relative, so the page also works below a path): GET v1/models, POST v1/chat/completions.

// What went wrong, in words for a person. `kind`: offline, key, busy, refused, server, cut, stream.
class WireError extends Error {
  constructor(kind, title, message, more = {}) {
    super(message);
    Object.assign(this, {kind, title, ...more});
  }
  toJSON() {
    const {kind, title, message, status, code, param, request_id, retry_after} = this;
    return {kind, title, message, status, code, param, request_id, retry_after};
  }
}

const TITLES = {
  400: 'The server refused this request', 401: 'This server asks for a key', 403: 'This key may not do that',
  404: 'Not found on this server', 408: 'The request took too long', 413: 'This message is too large for the server',
  422: 'The server refused this request', 429: 'Too many requests', 500: 'The server had a fault',
  502: 'No answer from behind the proxy', 503: 'The server is not ready', 504: 'No answer from behind the proxy',
};

function kind_of(status) {
  if (status === 401 || status === 403) return 'key';
  if (status === 429 || status === 503) return 'busy';
  return status >= 500 ? 'server' : 'refused';
}

// Any problem as what a message keeps of it.
function fault_of(problem) {
  const {kind, title, message, ...more} = problem instanceof WireError ? problem.toJSON() : {};
  return {kind: kind ?? 'page', title: title ?? 'This page had a fault', message: message ?? String(problem), ...more, at: Date.now()};
}

const cut = (request_id) =>
  new WireError('cut', 'The connection was lost', 'The answer was not finished. What had arrived is kept.', {request_id});

// `retry-after` is seconds or a date; `retry-after-ms` is finer.
function retry_after_of(headers) {
  const ms = Number(headers.get('retry-after-ms')), text = headers.get('retry-after');
  if (ms > 0) return Math.ceil(ms / 1000);
  if (!text) return undefined;
  const seconds = /^\d+$/.test(text.trim()) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.max(0, Math.min(3600, Math.ceil(seconds))) : undefined;
}

async function refusal(response) {
  const text = await response.text().catch(() => '');
  let error;
  try {
    error = JSON.parse(text).error;
  } catch { /* not the envelope: a proxy's page, or nothing */ }
  const plain = text.replace(/<[^>]{0,500}>/g, ' ').replace(/\s+/g, ' ').trim().slice(0, 300);
  const message = (typeof error === 'string' ? error : error?.message) || plain || response.statusText || 'No reason was given.';
  return new WireError(kind_of(response.status), TITLES[response.status] ?? 'The server answered ' + response.status, message, {
    status: response.status, code: error?.code ?? undefined, param: error?.param ?? undefined,
    request_id: response.headers.get('x-request-id') ?? undefined, retry_after: retry_after_of(response.headers),
  });
}

async function ask(path, key, options = {}) {
  const headers = {...options.headers};
  if (key) headers.Authorization = 'Bearer ' + key;
  let response;
  try {
    response = await fetch(path, {...options, headers, credentials: 'same-origin', cache: 'no-store', referrerPolicy: 'no-referrer'});
  } catch (problem) {
    if (problem.name === 'AbortError') throw problem;
    throw new WireError('offline', 'No connection to the server', location.host + ' does not answer. Is it still running?');
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function list_models(key) {
  const response = await ask('v1/models', key);
  const list = await response.json().catch(() => undefined);
  if (!Array.isArray(list?.data)) throw new WireError('server', TITLES[500], 'The list of models is not what it should be.');
  return list.data.filter((model) => typeof model.id === 'string');
}

// The payloads of a server-sent event stream; a comment (the server's sign of life) comes as undefined.
async function* events_of(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '', data = [], begin = performance.now();
  try {
    for (;;) {
      const {value, done} = await reader.read();
      // Reads of what is already here never leave the page to others: a burst of thousands of tokens would freeze it.
      if (performance.now() - begin > 24 && !document.hidden) {
        await new Promise((done_waiting) => setTimeout(done_waiting));
        begin = performance.now();
      }
      rest += done ? decoder.decode() + '\n\n' : decoder.decode(value, {stream: true});
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith(':')) yield undefined;
        else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
        else if (line === '' && data.length) {
          yield data.join('\n');
          data = [];
        }
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Streams one answer. `on` gets {waiting} | {reasoning, content} | {usage} | {finish} | {fingerprint} as they come. Throws
// WireError, or AbortError after signal. An answer without finish_reason has been cut, however the connection ended.
async function stream_chat(body, key, signal, on) {
  const response = await ask('v1/chat/completions', key, {
    method: 'POST', signal, headers: {'Content-Type': 'application/json', Accept: 'text/event-stream'}, body: JSON.stringify(body),
  });
  const request_id = response.headers.get('x-request-id') ?? undefined;
  let finished = false;
  try {
    for await (const data of events_of(response.body)) {
      if (data === undefined) { on({waiting: true}); continue; }
      if (data === '[DONE]') break;
      let chunk;
      try {
        chunk = JSON.parse(data);
      } catch {
        const message = 'The server sent an event that is not JSON: ' + data.slice(0, 80);
        throw new WireError('stream', 'The answer ended with an error', message, {request_id});
      }
      if (chunk.error) {
        const {message, code, param} = chunk.error;
        throw new WireError('stream', 'The answer ended with an error', message || 'No reason was given.',
          {code: code ?? undefined, param: param ?? undefined, request_id});
      }
      const choice = chunk.choices?.[0];
      if (chunk.system_fingerprint) on({fingerprint: chunk.system_fingerprint});
      if (choice?.delta?.reasoning_content || choice?.delta?.content) {
        on({reasoning: choice.delta.reasoning_content || '', content: choice.delta.content || ''});
      }
      if (chunk.usage) on({usage: chunk.usage});
      if (choice?.finish_reason) {
        finished = true;
        on({finish: choice.finish_reason});
      }
    }
  } catch (problem) {
    if (problem.name === 'AbortError' || problem instanceof WireError) throw problem;
    throw cut(request_id);
  }
  if (!finished) throw cut(request_id);
}

const shell_quote = (text) => "'" + text.replace(/'/g, "'\\''") + "'";

// The same request for a terminal. The key itself is never written out.
function as_curl(body, key) {
  const address = new URL('v1/chat/completions', location.href).href;
  const lines = ['curl -N ' + shell_quote(address), "-H 'Content-Type: application/json'"];
  if (key) lines.push('-H "Authorization: Bearer $API_KEY"');
  lines.push('-d ' + shell_quote(JSON.stringify(body, null, 2)));
  return lines.join(' \\\n  ');
}
