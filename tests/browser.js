// Scripts of the browser tests: the lines after a name; each begins with the lines before the
// first name. Those called "layout PAGE WIDTHS" have to return true at every width.
const lines = (node) => {
  const range = document.createRange();
  range.selectNodeContents(node);
  return new Set([...range.getClientRects()].map((box) => box.top)).size;
};
const box = document.querySelector('#results .scroll');
const open = () => document.querySelector('#table .expand').click();
const all = (selector) => [...document.querySelectorAll(selector)];

// == layout wide 1400: all columns are in sight on a laptop
return box.scrollWidth <= box.clientWidth && all('#table th').length >= 11;

// == layout wide 700: a narrow table shows that it continues
const style = getComputedStyle(box);
return box.scrollWidth > box.clientWidth && style.overflowX === 'auto'
  && style.backgroundAttachment === 'local, local, scroll, scroll';

// == layout wide 700: an open row begins with why and keeps to what is in sight
open();
const inner = document.querySelector('#table tr.details div').getBoundingClientRect();
const why = document.querySelector('#table tr.details .because').innerText;
open();
return inner.right <= box.getBoundingClientRect().right + 1 && why.startsWith('why')
  && why.includes('of the roofline');

// == layout tiles 700,1400: the words of a configuration stay whole
const cells = all('#table td.configuration .words');
return new Set(cells.map((words) => words.innerText)).size === 4
  && cells.every((words) => [...words.childNodes].every((one) => lines(one) <= 1));

// == layout tiles 700,1400: words stay whole in an open row
open();
const facts = all('#table .facts div').filter((fact) =>
  ['configuration', 'operation'].includes(fact.querySelector('dt').textContent));
const nodes = facts.flatMap((fact) => [...fact.querySelector('.words').childNodes]);
const most = Math.max(...nodes.map(lines));
open();
return facts.length === 2 && most === 1;

// == layout report 1600: an open row makes no table wider
const before = box.scrollWidth;
open();
const after = box.scrollWidth;
open();
return box.scrollHeight > box.clientHeight && before === after;

// == layout report 400,700,1000: the names of sections are all in sight
const nav = document.querySelector('.top nav');
const rights = [...nav.children].map((link) => link.getBoundingClientRect().right);
return nav.scrollWidth <= nav.clientWidth && nav.offsetHeight === nav.clientHeight
  && Math.max(...rights) <= innerWidth;

// == layout report 400,900,1600: the page never scrolls sideways
const root = document.documentElement;
return root.scrollWidth <= root.clientWidth;

// == layout report 1400: the keyboard's place is seen
return all('a, button, input, select, summary, [tabindex="0"]').every((one) => {
  if (!one.checkVisibility()) return true;
  one.focus({ focusVisible: true });
  const { outlineStyle, outlineWidth } = getComputedStyle(one);
  return document.activeElement === one && outlineStyle !== 'none'
    && parseFloat(outlineWidth) >= 2;
});

// == layout report 1400: every table has scopes and can be scrolled by keyboard
return !all('th:not([scope])').length
  && !all('.scroll:not([tabindex="0"][role=region][aria-label])').length
  && all('thead th').every((head) => head.textContent.trim() || head.ariaLabel);

// == layout report 1400: every plot is drawn
const plots = all('#plots-roofline .js-plotly-plot, [id^=plot-]')
  .filter((plot) => plot.id !== 'plots-roofline');
// A roofline per dtypes; speed, configurations, heat map, baseline, samples.
return plots.length === 4 + 5 && plots.every((plot) =>
  plot.querySelector('svg.main-svg')
  && plot.querySelector('.trace, .hm image, .point, path.js-line'));

// == layout report 1400: markers of the same ratio do not hide each other
const places = document.getElementById('plot-baseline').data.map((trace) => trace.y);
return places.length >= 2 && places[0].every((_, row) => {
  const ys = places.map((one) => one[row]);
  return new Set(ys).size === ys.length && ys.every((y) => Math.abs(y - row) < 0.5);
});

// == layout report 1400: samples have the colours of their providers
const traces = (id) => document.getElementById(id).data;
const colours = (id) => [...new Set(traces(id).filter((one) => one.marker)
  .map((one) => `${one.name.split(':')[0]} ${one.marker.color}`))].sort().join();
const lined = traces('plot-samples').filter((one) => one.mode === 'lines');
const styles = new Set(lined.map((one) => `${one.line.color} ${one.line.dash}`));
return colours('plot-speed') === colours('plot-samples') && lined.length === 7
  && styles.size === 7;

// == cells of a column
const heads = all('#table thead th');
const index = heads.findIndex((head) => head.dataset.key === arguments[0]);
return all('#table tr.row').map((row) => row.cells[index].innerText);

// == set a field
const field = document.getElementById(arguments[0]);
field.value = arguments[1];
field.dispatchEvent(new Event('input', { bubbles: true }));
field.dispatchEvent(new Event('change', { bubbles: true }));

// == pixels of each colour
const canvas = document.getElementById('timeline');
const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const seen = {};
for (let i = 0; i < data.length; i += 4) {
  const key = [data[i], data[i + 1], data[i + 2]].join();
  seen[key] = (seen[key] || 0) + 1;
}
const probe = document.createElement('canvas').getContext('2d');
const style = getComputedStyle(document.documentElement);
const result = {};
for (const name of ['gemm', 'other', 'communication', 'idle']) {
  probe.fillStyle = style.getPropertyValue('--' + name).trim();
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  result[name] = seen[[r, g, b].join()] || 0;
}
return result;

// == point at the timeline
const [row, share] = arguments;
const canvas = document.getElementById('timeline');
const around = canvas.getBoundingClientRect();
const left = Math.min(150, canvas.clientWidth / 4);
const clientX = around.left + left + share * (canvas.clientWidth - left - 10);
const clientY = around.top + 8 + row * 27 + 11;
canvas.dispatchEvent(new PointerEvent('pointermove', {clientX, clientY}));
return document.getElementById('timeline-hint').innerText;

// == touch everything
const canvas = document.getElementById('timeline');
const around = canvas.getBoundingClientRect();
const shown = new Set();
for (let y = 5; y < around.height; y += 9) {
  for (let x = 150; x < around.width; x += 4) {
    const place = {clientX: around.left + x, clientY: around.top + y, bubbles: true};
    canvas.dispatchEvent(new PointerEvent('pointermove', place));
    const hint = document.getElementById('timeline-hint');
    if (!hint.hidden) shown.add(hint.textContent);
  }
}
for (const element of document.querySelectorAll('*')) {
  for (const kind of ['mouseover', 'pointerenter', 'focus', 'error', 'load', 'animationstart']) {
    element.dispatchEvent(new Event(kind, {bubbles: true}));
  }
}
return [...shown];

// == zoom in 80 times
const canvas = document.getElementById('timeline');
const press = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
for (let i = 0; i < 80; i++) { press('+'); press('PageDown'); press('ArrowRight'); }
return canvas.dataset.drawn;

// == broken cells of traces
const cells = [...document.querySelectorAll('#gemms td, #collectives td, #steps td')];
const parts = cells.flatMap((cell) => [...cell.childNodes]).filter((one) => one.data);
const nav = document.querySelector('.top nav');
return [parts.filter((one) => lines(one) > 1).map((one) => one.data),
  nav.scrollWidth - nav.clientWidth, document.querySelectorAll('th:not([scope])').length];

// == wider than a phone
return [...document.querySelectorAll('body *')]
  .filter((one) => one.getBoundingClientRect().right > 391 || one.scrollWidth > 391)
  .map((one) => one.outerHTML.slice(0, 80));

// == colours of texts
const solid = (one) => {
  for (let at = one; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\)$/.test(colour)) return colour;
  }
  return '';
};
const shown = [...document.querySelectorAll('main *')].filter((one) => one.offsetParent
  && [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
return shown.map((one) =>
  [getComputedStyle(one).color, solid(one), one.outerHTML.slice(0, 80)]);

// == sort GEMMs
const table = document.getElementById('GEMMs');
const heads = [...table.tHead.rows[0].cells];
const place = heads.findIndex((head) => head.textContent === 'alone µs');
heads[place].querySelector('button').click();
return [...table.tBodies[0].rows].map((row) => Number(row.cells[place].dataset.value));

// == filter GEMMs
const table = document.getElementById('GEMMs');
const field = document.querySelector('input[data-filter="GEMMs"]');
field.value = '512 threads';
field.dispatchEvent(new Event('input', { bubbles: true }));
return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.textContent);
