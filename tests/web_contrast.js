// For tests/web_test.py, run in the page: [texts measured, those whose contrast with their ground is below 4.5].
() => {
  const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = paint.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    if (!e) return [255, 255, 255, 1];
    const colour = rgba(getComputedStyle(e).backgroundColor);
    return colour[3] === 1 ? colour : over(colour, ground(e.parentElement));
  };
  const bad = [];
  let count = 0;
  for (const e of document.querySelectorAll('body *')) {
    const said = [...e.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const hint = e.placeholder && !e.value;
    if (!(said || hint) || !e.checkVisibility({visibilityProperty: true})) continue;
    if (e.closest('.unseen, noscript, option, .skip, :disabled')) continue;
    // The ground of the message field is painted by a pseudo-element in the colour of the settings.
    const behind = ground(e.closest('#composer') && e.tagName !== 'BUTTON' ? document.getElementById('settings') : e);
    const ink = over(rgba(getComputedStyle(e, hint ? '::placeholder' : null).color), behind);
    const [more, less] = [light(ink), light(behind)].sort((x, y) => y - x);
    const contrast = (more + 0.05) / (less + 0.05);
    count++;
    if (contrast < 4.5) bad.push(`${e.tagName}.${e.className} ${(e.innerText ?? '').slice(0, 20)} ${contrast.toFixed(2)}`);
  }
  return [count, bad];
}
