// What every rank holds: a row a rank (or a switch that takes part), a column a chunk (or a group of them).
const grid = document.getElementById("grid");
const table = { left: 0, top: 0, wide: 0, high: 0, width: 0, height: 0 };

function placeGrid() {
  const box = grid.getBoundingClientRect();
  table.width = box.width;
  table.height = box.height;
  fit(grid, box.width, box.height);
  table.ratio = Math.min(window.devicePixelRatio || 1, 2);
  table.left = 8 + 7 * String(Math.max(data.ranks - 1, 10)).length + (rows > data.ranks ? 8 : 0);
  table.top = 18;
  table.gap = columns > dataColumns ? 8 : 0; // between chunks and scratch
  table.wide = Math.max(0.1, Math.min(72, (box.width - table.left - table.gap - 4) / columns)); // a frame may have no size yet
  table.high = Math.max(0.1, Math.min(52, (box.height - table.top - 4) / rows));
  table.marked = table.wide >= 15 && table.high >= 13.5; // for all cells alike, however they are rounded to pixels
  drawGrid();
}
function cellBox(c) { // on whole pixels, so that a cell can be drawn anew without a trace of what was there
  const row = Math.floor(c / columns), column = c % columns, left = table.left + (column >= dataColumns ? table.gap : 0);
  const x = whole(left + column * table.wide), y = whole(table.top + row * table.high);
  return [x, y, whole(left + (column + 1) * table.wide) - x, whole(table.top + (row + 1) * table.high) - y];
}
function whole(place) {
  return Math.round(place * table.ratio) / table.ratio;
}
function drawGrid() {
  const pen = grid.getContext("2d");
  pen.clearRect(0, 0, table.width, table.height);
  pen.fillStyle = paint.muted;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const everyRow = Math.ceil(13 / table.high);
  for (let row = 0; row < rows; row += row + everyRow >= data.ranks && row < data.ranks ? Math.max(1, data.ranks - row) : everyRow) {
    const text = row < data.ranks ? String(row) : `s${row - data.ranks}`;
    pen.fillText(text, table.left - 5, table.top + (row + 0.5) * table.high);
  }
  pen.textAlign = "center";
  if (data.operation !== "barrier") {
    const widest = 7 * Math.max(G.first[dataColumns - 1].toString().length, columns > dataColumns ? 1 + G.scratch[columns - dataColumns - 1].toString().length : 0) + 8;
    const everyColumn = Math.ceil(widest / table.wide);
    for (let column = 0; column < columns; column++) {
      const at = column < dataColumns ? column : column - dataColumns;
      if (at % everyColumn || (columns > dataColumns && column < dataColumns && column > 0 && (dataColumns - column) * table.wide < widest)) continue;
      const first = column < dataColumns ? G.first[at] : `s${G.scratch[at]}`;
      pen.fillText(String(first), cellBox(column)[0] + table.wide / 2, table.top / 2);
    }
  }
  for (let c = 0; c < level.length; c++) drawCell(pen, c);
  touched.clear();
}
function drawChanges() {
  if (!touched.size) return;
  const pen = grid.getContext("2d");
  for (const c of touched) drawCell(pen, c);
  touched.clear();
}
function drawCell(pen, c) {
  const [x, y, outerWide, outerHigh] = cellBox(c), colour = columnOf(c % columns), value = level[c];
  const wide = outerWide - (outerWide > 10 ? 2 : outerWide > 3 ? 1 / table.ratio : 0);
  const high = outerHigh - (outerHigh > 10 ? 2 : outerHigh > 3 ? 1 / table.ratio : 0);
  pen.fillStyle = paint.panel;
  pen.fillRect(x, y, outerWide, outerHigh);
  pen.fillStyle = paint.cell;
  pen.fillRect(x, y, wide, high);
  if (value > 0) { // it fills from below, or grows stronger where it is too low for that
    const low = high < 10, share = low ? 1 : Math.max(value / WHOLE, Math.min(1, 1.5 / high));
    pen.globalAlpha = (goal[c] ? 1 : 0.55) * (low ? 0.15 + (0.85 * value) / WHOLE : 1);
    pen.fillStyle = colours[colour];
    pen.fillRect(x, y + high * (1 - share), wide, high * share);
    pen.globalAlpha = 1;
  }
  if (!table.marked) return;
  pen.lineWidth = 1.6;
  if (value < 0) {
    pen.strokeStyle = paint.muted;
    pen.beginPath();
    pen.arc(x + wide / 2, y + high / 2, Math.min(wide, high) / 6, 0, 2 * Math.PI);
    pen.stroke();
  } else if (value === WHOLE && goal[c]) { // a tick: the result is here
    const s = Math.min(wide, high) / 5;
    pen.strokeStyle = inks[colour];
    pen.beginPath();
    pen.moveTo(x + wide / 2 - 1.2 * s, y + high / 2);
    pen.lineTo(x + wide / 2 - 0.3 * s, y + high / 2 + 0.9 * s);
    pen.lineTo(x + wide / 2 + 1.3 * s, y + high / 2 - 1.0 * s);
    pen.stroke();
  } else if (value > 0 && holds[c] >= 0 && (data.reduces || data.operation === "barrier")) {
    const text = String(sizes[holds[c]]);
    if (wide < 7 * text.length + 4) return;
    pen.fillStyle = value / WHOLE > 0.55 ? inks[colour] : paint.ink; // the number stands on the filled or on the empty half
    pen.font = `${Math.min(12, 0.6 * high)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(text, x + wide / 2, y + high / 2 + 0.5);
  }
}
const sizes = G.sets.map((text) => { // how many ranks are in each set
  let n = 0;
  for (const digit of text) for (let bits = parseInt(digit, 16); bits; bits >>= 1) n += bits & 1;
  return n;
});
let outlined = [];
function outlineCells(hovered) { // those that a transfer writes, or the one under the pointer
  const wanted = hovered === null ? [] : hovered.cell !== undefined ? [hovered.cell] : hovered.transfer !== undefined ? (changesOf.get(hovered.transfer) || []).map((k) => cell[k]) : [];
  if (!wanted.length && !outlined.length) return;
  const pen = grid.getContext("2d");
  for (const c of outlined) drawCell(pen, c);
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 1.5;
  for (const c of wanted) {
    const [x, y, wide, high] = cellBox(c);
    if (wide > 4 && high > 4) pen.strokeRect(x + 1, y + 1, wide - 3, high - 3);
    else {
      pen.fillStyle = paint.ink;
      pen.fillRect(x, y, wide, high);
    }
  }
  outlined = wanted;
}
function gridAt(x, y) {
  const row = Math.floor((y - table.top) / table.high);
  let inside = x - table.left;
  if (inside > dataColumns * table.wide) inside = Math.max(dataColumns * table.wide, inside - table.gap);
  const column = Math.floor(inside / table.wide);
  return row >= 0 && row < rows && column >= 0 && column < columns ? { cell: row * columns + column } : null;
}
function gridTexts() {
  const groups = G.first[1] > 1 || G.first[dataColumns] > dataColumns;
  const title = data.operation === "barrier" ? "what every rank has heard of" : `what every rank holds: ${groups ? "groups of " : ""}chunks across, ranks down`;
  document.getElementById("grid-title").textContent = title;
  const words = [];
  if (data.reduces) words.push(groups ? "a cell fills as contributions are added up" : "a cell fills with the ranks that are added up in it, and has their number");
  else if (data.operation === "barrier") words.push("a cell fills with the ranks that were heard of");
  else words.push("a cell fills when its data arrives");
  words.push("a tick is a part of the result");
  if (G.level.includes(-1) || G.changes.level.includes(-1)) words.push("a small ring is data that is no part of the result there");
  if (rows > data.ranks) words.push(`s0${rows - data.ranks > 1 ? `-s${rows - data.ranks - 1}` : ""} ${rows - data.ranks > 1 ? "are switches" : "is a switch"}`);
  if (columns > dataColumns) words.push("on the right is scratch");
  document.getElementById("legend").textContent = `${words.join("; ")}.`;
}
