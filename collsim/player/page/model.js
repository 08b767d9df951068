// The run: columns of the data as arrays, and what every rank holds at any time.
const data = JSON.parse(document.getElementById("data").textContent);
const T = data.transfers, H = data.hops, count = T.src.length, duration = data.time;
const ready = new Float64Array(count), start = new Float64Array(count), end = new Float64Array(count);
const hopsFrom = new Uint32Array(count + 1);
for (let i = 0; i < count; i++) {
  ready[i] = T.ready[i];
  start[i] = ready[i] + T.start[i];
  end[i] = start[i] + T.end[i];
  hopsFrom[i + 1] = hopsFrom[i] + H.count[i];
}
// A message may be on several links at once. Its token is on one: it changes over while the message is on both, the later
// the further it has come, or waits at the node between.
const hops = H.link.length;
const hopIn = new Float64Array(hops), hopOut = new Float64Array(hops), heldFrom = new Float64Array(hops), heldTo = new Float64Array(hops);
for (let i = 0; i < count; i++) {
  const lo = hopsFrom[i], hi = hopsFrom[i + 1];
  for (let h = lo; h < hi; h++) {
    heldFrom[h] = start[i] + H.enter[h];
    heldTo[h] = heldFrom[h] + H.held[h];
    hopIn[h] = heldFrom[h];
    hopOut[h] = heldFrom[h] + H.arrive[h];
    if (h > lo && hopOut[h - 1] > hopIn[h]) {
      const share = (h - lo) / (hi - lo);
      hopIn[h] += (hopOut[h - 1] - hopIn[h]) * share;
      hopOut[h - 1] = hopIn[h];
    }
  }
}

const G = data.contents, rows = data.ends.length, columns = G.columns, WHOLE = 1000;
const level = Int16Array.from(G.level), holds = Int32Array.from(G.set), goal = Uint8Array.from(G.goal);
const changes = G.changes.transfer.length, cell = Uint32Array.from(G.changes.cell);
const levelAfter = Int16Array.from(G.changes.level), holdsAfter = Int32Array.from(G.changes.set);
const levelBefore = new Int16Array(changes), holdsBefore = new Int32Array(changes), changeTime = new Float64Array(changes);
const changesOf = new Map(), rowGoals = new Int32Array(rows), rowMissing = new Int32Array(rows), rowLevel = new Float64Array(rows);
for (let c = 0; c < level.length; c++) {
  if (!goal[c]) continue;
  const row = Math.floor(c / columns);
  rowGoals[row]++;
  if (level[c] < WHOLE) rowMissing[row]++;
  rowLevel[row] += Math.max(0, level[c]);
}
const results = rowGoals.reduce((n, goals) => n + (goals > 0), 0);
{
  const levels = level.slice(), sets = holds.slice();
  for (let k = 0; k < changes; k++) {
    const c = cell[k], transfer = G.changes.transfer[k];
    changeTime[k] = end[transfer];
    levelBefore[k] = levels[c];
    holdsBefore[k] = sets[c];
    levels[c] = levelAfter[k];
    sets[c] = holdsAfter[k];
    if (!changesOf.has(transfer)) changesOf.set(transfer, []);
    changesOf.get(transfer).push(k);
  }
}

const touched = new Set(); // cells to draw anew
let applied = 0; // changes up to now
function put(c, newLevel, newSet) {
  if (goal[c]) {
    const row = Math.floor(c / columns);
    rowMissing[row] += (newLevel < WHOLE) - (level[c] < WHOLE);
    rowLevel[row] += Math.max(0, newLevel) - Math.max(0, level[c]);
  }
  level[c] = newLevel;
  holds[c] = newSet;
  touched.add(c);
}
function contentsAt(time) {
  while (applied < changes && changeTime[applied] <= time) {
    put(cell[applied], levelAfter[applied], holdsAfter[applied]);
    applied++;
  }
  while (applied > 0 && changeTime[applied - 1] > time) {
    applied--;
    put(cell[applied], levelBefore[applied], holdsBefore[applied]);
  }
}
function completeRanks() {
  let n = 0;
  for (let row = 0; row < rows; row++) n += rowGoals[row] > 0 && rowMissing[row] === 0;
  return n;
}

// Where steps end: a step has ended when all transfers of it and of the steps before have.
const stepEnds = new Float64Array(data.steps);
for (let i = 0; i < count; i++) stepEnds[T.step[i]] = Math.max(stepEnds[T.step[i]], end[i]);
for (let s = 1; s < data.steps; s++) stepEnds[s] = Math.max(stepEnds[s], stepEnds[s - 1]);
const distinct = (times) => Float64Array.from(new Set([0, ...times, duration])).sort();
const stepBorders = distinct(stepEnds), arrivals = distinct(end);
function firstAfter(sorted, time) {
  let lo = 0, hi = sorted.length;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (sorted[middle] > time) hi = middle;
    else lo = middle + 1;
  }
  return lo;
}
const stepsDone = (time) => firstAfter(stepEnds, time);

// Transfers that are on their way, and how many wait for a link at each sender.
const active = [], waiting = new Uint32Array(rows);
function lookAt(time) {
  active.length = 0;
  waiting.fill(0);
  for (let i = 0; i < count; i++) {
    if (ready[i] > time || end[i] <= time) continue;
    if (start[i] > time) waiting[T.src[i]]++;
    else active.push(i);
  }
}

// Colours of chunks: a few that are told apart with any kind of colour vision, or a scale of one lightness after the other.
const FEW = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a600"];
const SCALE = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"].map(
  (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)),
);
const dataColumns = G.first.length - 1;
let colours = [], inks = [];
function mixColours(dark) {
  colours = [];
  inks = [];
  for (let i = 0; i < dataColumns; i++) {
    let rgb;
    if (dataColumns <= FEW.length) {
      rgb = [1, 3, 5].map((at) => parseInt(FEW[i].slice(at, at + 2), 16));
    } else {
      const share = i / (dataColumns - 1), at = (dark ? 0.22 + 0.78 * share : 0.9 * share) * (SCALE.length - 1);
      const low = Math.min(SCALE.length - 2, Math.floor(at));
      rgb = SCALE[low].map((v, j) => Math.round(v + (SCALE[low + 1][j] - v) * (at - low)));
    }
    colours.push(`rgb(${rgb.join(",")})`);
    inks.push(rgb[0] * 0.299 + rgb[1] * 0.587 + rgb[2] * 0.114 < 140 ? "#ffffff" : "#101418");
  }
}
function columnOf(column) { // scratch takes the colours in turn
  return column < dataColumns ? column : (column - dataColumns) % dataColumns;
}
const colourOf = new Uint16Array(count);
for (let i = 0; i < count; i++) {
  const known = changesOf.get(i);
  colourOf[i] = known ? columnOf(cell[known[0]] % columns) : Math.floor((Math.min(T.chunk[i], G.first[dataColumns] - 1) * dataColumns) / G.first[dataColumns]);
}
