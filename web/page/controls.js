// controls.js - models, settings and pictures.

// ---- models and settings ------------------------------------------------------------------------------------------

const current_model = () => models.find((model) => model.id === settings.model) ?? models[0];

async function load_models() {
  try {
    models = await list_models(secret);
    show_empty();
  } catch (problem) {
    models = [];
    show_empty(fault_of(problem));
  }
  $('model').replaceChildren(...models.map((model) => h('option', {value: model.id}, model.name ?? model.id)));
  $('model-pick').hidden = models.length === 0;
  show_model();
}

// What the model says it can do decides which controls there are; one that says nothing gets every level and no pictures.
function show_model() {
  const model = current_model();
  $('model').value = model?.id ?? '';
  const levels = model?.effort?.supported_levels ?? ['low', 'high', 'max'];
  const choices = [['', 'default'], ['off', 'off'], ...levels.map((level) => [level, level])];
  $('thinking').replaceChildren(...choices.map(([value, text]) => h('option', {value}, text)));
  if (!choices.some(([value]) => value === settings.thinking)) settings.thinking = '';
  $('thinking').value = settings.thinking;
  $('attach').hidden = !model?.input_modalities?.includes('image');
  show_state();
}

const SHORT = {temperature: 'temperature', top_p: 'top p', max_tokens: 'max', seed: 'seed'};

function show_state() {
  const busy = streams.has(chat.id);
  const button = $('send');
  button.querySelector('use').setAttribute('href', busy ? '#i-stop' : '#i-send');
  button.setAttribute('aria-label', busy ? 'Stop' : 'Send');
  button.title = busy ? 'Stop (Esc)' : 'Send';
  button.disabled = !busy && !prompt_field.value.trim() && !draft_pictures.length;
  const changed = Object.keys(SHORT).filter((name) => settings[name] !== '').map((name) => SHORT[name] + ' ' + settings[name]);
  if (settings.system.trim()) changed.unshift('system prompt');
  $('changed').textContent = changed.join(', ');
  $('changed').title = changed.join(', ');
}

function set(name, value) {
  settings[name] = value;
  Store.write('settings', settings);
  show_state();
}

function show_settings() {
  for (const name of ['system', 'temperature', 'top_p', 'max_tokens', 'seed']) $('s-' + name).value = settings[name];
  $('s-key').value = secret;
  $('s-remember').checked = Store.key_is_remembered();
  $('key-note').textContent = 'Sent to ' + location.host + ' only. Forgotten when this tab closes, unless you tick the box.';
  document.querySelector(`[name=theme][value="${settings.theme}"]`).checked = true;
}

function show_theme() {
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
  else delete document.documentElement.dataset.theme;
}

// ---- pictures -----------------------------------------------------------------------------------------------------

const as_data_url = (blob) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = fail;
  reader.readAsDataURL(blob);
});

// The model sees about 1,300 pixels a side; larger pictures are scaled here, which also keeps the history small.
async function add_pictures(files) {
  for (const file of files) {
    try {
      const bitmap = await createImageBitmap(file);
      const scale = Math.min(1, 1600 / Math.max(bitmap.width, bitmap.height));
      if (scale === 1 && file.size < 600_000 && /^image\/(?:png|jpeg|webp|gif)$/.test(file.type)) {
        draft_pictures.push(await as_data_url(file));
        continue;
      }
      const scaled = (side) => Math.max(1, Math.round(side * scale));
      const canvas = h('canvas', {width: scaled(bitmap.width), height: scaled(bitmap.height)});
      const paint = canvas.getContext('2d');
      paint.fillStyle = '#fff';
      paint.fillRect(0, 0, canvas.width, canvas.height);
      paint.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      draft_pictures.push(canvas.toDataURL('image/jpeg', 0.9));
    } catch {
      toast('“' + file.name + '” is not a picture this browser can read.');
    }
  }
  show_pictures();
}

function show_pictures() {
  $('pictures').hidden = !draft_pictures.length;
  $('pictures').replaceChildren(...draft_pictures.map((url, i) => h('div', {class: 'one'},
    h('img', {src: url, alt: 'Picture ' + (i + 1)}),
    icon_button('close', 'Remove picture ' + (i + 1), () => {
      draft_pictures.splice(i, 1);
      show_pictures();
      prompt_field.focus();
    }))));
  show_state();
}
