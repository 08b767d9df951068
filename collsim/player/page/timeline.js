// The timeline: a row a sender, a bar a transfer, drawn once; the hand moves over it.
const timeline = document.getElementById("timeline");
const chart = { width: 0, height: 0, left: 0, right: 10, top: 6, bottom: 20, high: 0, still: document.createElement("canvas") };
const senders = [...new Set(T.src)].sort((a, b) => a - b), rowOf = new Map(senders.map((end, i) => [end, i]));
const lane = new Uint16Array(count), lanes = new Uint16Array(senders.length);
const bySender = senders.map(() => []);
for (let i = 0; i < count; i++) bySender[rowOf.get(T.src[i])].push(i);
bySender.forEach((transfers, row) => {
  transfers.sort((a, b) => start[a] - start[b] || a - b);
  const free = [];
  for (const i of transfers) {
    let at = free.findIndex((time) => time <= start[i]);
    if (at < 0) at = free.push(0) - 1;
    free[at] = end[i];
    lane[i] = at;
  }
  lanes[row] = Math.max(1, free.length);
});

function placeTimeline() {
  const height = Math.round(Math.max(80, Math.min(window.innerHeight * 0.27, 26 + 17 * senders.length)));
  timeline.style.height = `${height}px`;
  const box = timeline.getBoundingClientRect();
  chart.width = box.width;
  chart.height = box.height;
  fit(timeline, box.width, box.height);
  chart.left = 12 + 7 * String(Math.max(10, data.ranks - 1)).length + (rows > data.ranks ? 6 : 0);
  chart.high = Math.max(0.1, (chart.height - chart.top - chart.bottom) / Math.max(1, senders.length));
  drawChart();
}
const toX = (time) => chart.left + (duration ? time / duration : 0) * (chart.width - chart.left - chart.right);
const toTime = (x) => Math.max(0, Math.min(duration, ((x - chart.left) / Math.max(1, chart.width - chart.left - chart.right)) * duration));
function bar(i) {
  const row = rowOf.get(T.src[i]), high = chart.high / lanes[row], gap = high > 5 ? 0.8 : 0;
  const tall = (T.reduce[i] ? 0.96 : 0.62) * high - gap; // as in the plots: tall where the receiver adds, slim where it copies
  const y = chart.top + row * chart.high + lane[i] * high + (high - tall) / 2;
  const x = toX(start[i]);
  return [x, y, Math.max(0.7, toX(end[i]) - x), Math.max(0.5, tall)];
}
function drawChart() {
  const pen = fit(chart.still, chart.width, chart.height);
  pen.clearRect(0, 0, chart.width, chart.height);
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = paint.muted;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const every = Math.ceil(12 / chart.high);
  senders.forEach((end, row) => {
    if (row % every === 0) pen.fillText(end < data.ranks ? String(end) : `s${end - data.ranks}`, chart.left - 6, chart.top + (row + 0.5) * chart.high);
  });
  ticks(pen);
  if (chart.high > 9) { // lines between rows
    pen.beginPath();
    for (let row = 1; row < senders.length; row++) {
      pen.moveTo(chart.left, chart.top + row * chart.high);
      pen.lineTo(chart.width - chart.right, chart.top + row * chart.high);
    }
    pen.stroke();
  }
  for (let i = 0; i < count; i++) {
    pen.fillStyle = colours[colourOf[i]];
    pen.fillRect(...bar(i));
  }
  if (!choice.critical) return;
  for (const i of data.critical) {
    const [x, y, wide, high] = bar(i);
    pen.strokeStyle = paint.panel;
    pen.lineWidth = 3.5;
    pen.strokeRect(x, y, wide, high);
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 1.6;
    pen.strokeRect(x, y, wide, high);
  }
}
function ticks(pen) {
  const bottom = chart.height - chart.bottom;
  pen.strokeStyle = paint.edge;
  pen.lineWidth = 1;
  pen.textBaseline = "top";
  pen.textAlign = "center";
  if (!duration) return;
  const span = (duration * data.tick) / clockFactor, room = (chart.width - chart.left - chart.right) / 90;
  const rough = span / Math.max(1, room), power = 10 ** Math.floor(Math.log10(rough));
  const each = [1, 2, 5, 10].map((v) => v * power).find((v) => v >= rough);
  pen.beginPath();
  for (let k = 0; k * each <= span * 1.0000001; k++) {
    const x = toX((k * each * clockFactor) / data.tick);
    pen.moveTo(x, chart.top);
    pen.lineTo(x, bottom + 3);
    if (x < chart.width - 70) pen.fillText(String(Number((k * each).toPrecision(6))), x, bottom + 5);
  }
  pen.stroke();
  pen.textAlign = "right";
  pen.fillText(`time (${clockUnit})`, chart.width - 4, bottom + 5);
}
function drawTimeline(time, hovered) {
  const pen = timeline.getContext("2d"), x = toX(time), bottom = chart.height - chart.bottom;
  pen.clearRect(0, 0, chart.width, chart.height);
  pen.drawImage(chart.still, 0, 0, chart.width, chart.height);
  pen.globalAlpha = 0.5; // what is yet to come
  pen.fillStyle = paint.panel;
  pen.fillRect(x, 0, Math.max(0, chart.width - chart.right - x + 2), bottom);
  pen.globalAlpha = 1;
  if (hovered !== null && hovered.transfer !== undefined) {
    const [bx, by, wide, high] = bar(hovered.transfer);
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 2;
    pen.strokeRect(bx - 1, by - 1, wide + 2, high + 2);
  }
  pen.strokeStyle = paint.accent;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x, 2);
  pen.lineTo(x, bottom + 2);
  pen.stroke();
  pen.fillStyle = paint.accent;
  pen.beginPath();
  pen.moveTo(x - 5, 0);
  pen.lineTo(x + 5, 0);
  pen.lineTo(x, 7);
  pen.fill();
}
function timelineAt(x, y) {
  const row = Math.floor((y - chart.top) / chart.high);
  if (row < 0 || row >= senders.length) return null;
  let best = null, nearest = 4;
  for (const i of bySender[row]) {
    const [bx, by, wide, high] = bar(i), slack = Math.max(0, (5 - high) / 2);
    if (y < by - slack || y > by + high + slack) continue;
    const off = Math.max(bx - x, x - bx - wide, 0);
    if (off < nearest) [nearest, best] = [off, { transfer: i }];
  }
  return best;
}
