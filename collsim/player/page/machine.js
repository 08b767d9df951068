// The machine: nodes and links once on a canvas of their own, what moves on top of it in every frame.
const machine = document.getElementById("machine");
const view = { width: 0, height: 0, ratio: 1, x: [], y: [], radius: 8, curves: [], still: document.createElement("canvas"), top: document.createElement("canvas") };
let paint = {};

function fit(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

function placeMachine() {
  const box = machine.getBoundingClientRect();
  view.width = box.width;
  view.height = box.height;
  fit(machine, box.width, box.height);
  const margin = Math.min(34, 0.07 * Math.min(box.width, box.height) + 8);
  placeNodes(box, margin);
  let beyond = 0; // bent links need room at the edges
  for (const curve of view.curves) {
    const [x, y] = along(curve, 0.5);
    beyond = Math.max(beyond, 4 - x, 4 - y, x + 4 - box.width, y + 4 - box.height);
  }
  if (beyond > 0) placeNodes(box, Math.min(margin + 1.3 * beyond, 0.3 * Math.min(box.width, box.height)));
}
function placeNodes(box, margin) {
  const N = data.nodes, n = N.name.length;
  let across = Math.max(10, box.width - 2 * margin), up = Math.max(10, box.height - 2 * margin);
  // circles stay nearly round; what is drawn in levels may grow wide
  across = Math.min(across, (others ? 2.6 : 1.5) * up);
  up = Math.min(up, 1.5 * across);
  const left = (box.width - across) / 2, top = (box.height - up) / 2;
  view.toX = (x) => left + x * across;
  view.toY = (y) => top + y * up;
  view.x = N.x.map(view.toX);
  view.y = N.y.map(view.toY);
  let nearest = Infinity;
  for (let a = 0; a < n; a++) {
    for (let b = a + 1; b < n; b++) {
      const square = (view.x[a] - view.x[b]) ** 2 + (view.y[a] - view.y[b]) ** 2;
      if (square > 1 && square < nearest) nearest = square;
    }
  }
  view.radius = Math.max(2.5, Math.min(17, 0.33 * Math.sqrt(nearest)));
  placeLinks();
}

// Each link is a curve (x0, y0, xc, yc, x1, y1), beside the one back and its parallel ones; bent where a node is in the way.
function placeLinks() {
  const L = data.links, bundles = new Map();
  for (let link = 0; link < L.src.length; link++) {
    const a = Math.min(L.src[link], L.dst[link]), b = Math.max(L.src[link], L.dst[link]), key = a * 65536 + b;
    if (!bundles.has(key)) bundles.set(key, [[], []]);
    bundles.get(key)[L.src[link] === a ? 0 : 1].push(link);
  }
  view.curves = new Array(L.src.length);
  for (const [key, [there, back]] of bundles) {
    const a = Math.floor(key / 65536), b = key % 65536;
    const dx = view.x[b] - view.x[a], dy = view.y[b] - view.y[a], length = Math.hypot(dx, dy) || 1;
    const sideX = -dy / length, sideY = dx / length;
    const bend = bendOf(a, b, length, sideX, sideY);
    const gap = Math.min(4, (1.3 * view.radius) / (there.length + back.length));
    const both = there.length && back.length;
    const lay = (link, offset, turned) => {
      const ox = sideX * offset, oy = sideY * offset;
      const cx = (view.x[a] + view.x[b]) / 2 + ox + 2 * sideX * bend, cy = (view.y[a] + view.y[b]) / 2 + oy + 2 * sideY * bend;
      const from = [view.x[a] + ox, view.y[a] + oy], to = [view.x[b] + ox, view.y[b] + oy];
      view.curves[link] = turned ? [...to, cx, cy, ...from] : [...from, cx, cy, ...to];
    };
    there.forEach((link, i) => lay(link, both ? (i + 0.5) * gap : (i - (there.length - 1) / 2) * gap, false));
    back.forEach((link, i) => lay(link, both ? -(i + 0.5) * gap : (i - (back.length - 1) / 2) * gap, true));
  }
}
function bendOf(a, b, length, sideX, sideY) {
  const room = 0.9 * view.radius;
  for (let n = 0; n < view.x.length; n++) {
    if (n === a || n === b) continue;
    const dx = view.x[n] - view.x[a], dy = view.y[n] - view.y[a];
    const off = dx * sideX + dy * sideY, along = dx * sideY - dy * sideX;
    if (Math.abs(off) < room && along > room && along < length - room) {
      const midX = (view.x[a] + view.x[b]) / 2 - view.width / 2, midY = (view.y[a] + view.y[b]) / 2 - view.height / 2;
      const outward = midX * sideX + midY * sideY < 0 ? -1 : 1;
      return outward * Math.min(0.16 * length, 2.4 * view.radius + 0.05 * length);
    }
  }
  return 0;
}
function along(curve, share) {
  const rest = 1 - share;
  return [
    rest * rest * curve[0] + 2 * rest * share * curve[2] + share * share * curve[4],
    rest * rest * curve[1] + 2 * rest * share * curve[3] + share * share * curve[5],
  ];
}
function trace(pen, curve) {
  pen.moveTo(curve[0], curve[1]);
  pen.quadraticCurveTo(curve[2], curve[3], curve[4], curve[5]);
}

function drawStill() {
  const pen = fit(view.still, view.width, view.height), N = data.nodes, L = data.links;
  pen.font = "11px system-ui, sans-serif";
  for (const [name, left, top, right, bottom] of data.boxes) {
    const x = view.toX(left), y = view.toY(top), wide = view.toX(right) - x, high = view.toY(bottom) - y;
    pen.fillStyle = paint.back;
    pen.strokeStyle = paint.edge;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(x, y, wide, high, 7);
    pen.fill();
    pen.stroke();
    if (wide > 60) {
      pen.fillStyle = paint.muted;
      pen.textAlign = "left";
      pen.textBaseline = "bottom";
      pen.fillText(short(name), x + 5, y + high - 3);
    }
  }
  pen.strokeStyle = paint.wire;
  const rates = data.rates.length;
  for (let rate = 0; rate < rates; rate++) { // rates are sorted: the fastest are the widest
    pen.lineWidth = rates > 1 ? 0.8 + (1.4 * rate) / (rates - 1) : 1.2;
    pen.beginPath();
    for (let link = 0; link < view.curves.length; link++) if (L.rate[link] === rate) trace(pen, view.curves[link]);
    pen.stroke();
  }
  const over = fit(view.top, view.width, view.height);
  for (let node = 0; node < N.name.length; node++) drawNode(over, node);
}
const others = data.nodes.rank.filter((rank) => rank < 0).length;
function drawNode(pen, node) {
  const x = view.x[node], y = view.y[node], kind = data.nodes.kind[node], rank = data.nodes.rank[node];
  const r = rank >= 0 || kind === "switch" ? view.radius : 0.72 * view.radius;
  pen.fillStyle = paint.node;
  pen.strokeStyle = paint.muted;
  pen.lineWidth = view.radius > 5 ? 1.4 : 1;
  pen.beginPath();
  if (rank >= 0) pen.roundRect(x - r, y - r, 2 * r, 2 * r, 0.3 * r);
  else if (kind === "switch") pen.arc(x, y, r, 0, 2 * Math.PI);
  else polygon(pen, x, y, r, kind === "nic" ? 4 : 6);
  pen.fill();
  pen.stroke();
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  if (rank >= 0 && r >= 7) {
    pen.fillStyle = paint.ink;
    pen.font = `600 ${Math.min(13, 1.05 * r)}px system-ui, sans-serif`;
    pen.fillText(String(rank), x, y + 0.5);
  } else if (rank < 0 && kind === "switch" && others <= 12 && view.radius >= 8) {
    const name = data.nodes.name[node].split(".").pop();
    pen.fillStyle = paint.muted;
    pen.font = `${name.length > 4 ? 11 : Math.min(12, 0.8 * r)}px system-ui, sans-serif`;
    if (name.length <= 4) pen.fillText(name, x, y + 0.5);
    else if (name.length <= 12) pen.fillText(name, x, y - r - 8);
  }
}
function polygon(pen, x, y, r, corners) {
  for (let i = 0; i < corners; i++) {
    const angle = (2 * Math.PI * i) / corners;
    pen[i ? "lineTo" : "moveTo"](x + r * Math.sin(angle), y - r * Math.cos(angle));
  }
  pen.closePath();
}

const painted = new Uint32Array(data.links.src.length); // by link: the frame in which it was painted last
let frames = 0;
const tokens = { x: new Float32Array(count), y: new Float32Array(count), shown: [] };
function placeToken(i, time) {
  const lo = hopsFrom[i], hi = hopsFrom[i + 1];
  let x = view.x[data.ends[T.src[i]]], y = view.y[data.ends[T.src[i]]];
  for (let h = lo; h < hi && hopIn[h] <= time; h++) {
    const curve = view.curves[H.link[h]], span = hopOut[h] - hopIn[h];
    [x, y] = along(curve, span > 0 ? Math.min(1, (time - hopIn[h]) / span) : 1);
  }
  tokens.x[i] = x;
  tokens.y[i] = y;
}
function drawMachine(time, hovered) {
  const pen = machine.getContext("2d");
  pen.clearRect(0, 0, view.width, view.height);
  pen.drawImage(view.still, 0, 0, view.width, view.height);
  const width = Math.max(1.8, Math.min(3.4, 0.25 * view.radius));
  pen.lineWidth = width;
  const byColour = new Map();
  frames++;
  for (const i of active) {
    for (let h = hopsFrom[i]; h < hopsFrom[i + 1]; h++) {
      if (heldFrom[h] > time || heldTo[h] <= time || painted[H.link[h]] === frames) continue;
      painted[H.link[h]] = frames; // where a link is shared the first one gives the colour
      if (!byColour.has(colourOf[i])) byColour.set(colourOf[i], []);
      byColour.get(colourOf[i]).push(H.link[h]);
    }
    placeToken(i, time);
  }
  for (const [colour, links] of byColour) {
    pen.strokeStyle = colours[colour];
    pen.beginPath();
    for (const link of links) trace(pen, view.curves[link]);
    pen.stroke();
  }
  if (hovered !== null && hovered.link !== undefined) markLinks(pen, [hovered.link]);
  if (hovered !== null && hovered.transfer !== undefined) {
    markLinks(pen, H.link.slice(hopsFrom[hovered.transfer], hopsFrom[hovered.transfer + 1]));
    if (hopsFrom[hovered.transfer] === hopsFrom[hovered.transfer + 1]) markNode(pen, data.ends[T.src[hovered.transfer]]);
  }
  drawTokens(pen, hovered); // below the nodes: what has not left yet must not cover the number of its rank
  pen.drawImage(view.top, 0, 0, view.width, view.height);
  drawProgress(pen);
}
function markLinks(pen, links) {
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 1.6;
  pen.setLineDash([5, 4]);
  pen.beginPath();
  for (const link of links) trace(pen, view.curves[link]);
  pen.stroke();
  pen.setLineDash([]);
}
function markNode(pen, node) {
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 1.6;
  pen.beginPath();
  pen.arc(view.x[node], view.y[node], 1.6 * view.radius, 0, 2 * Math.PI);
  pen.stroke();
}
// How much of its result a rank holds is an arc around it; how many transfers wait there is a number.
function drawProgress(pen) {
  const r = 1.42 * view.radius + 1.5;
  for (let row = 0; row < rows; row++) {
    const node = data.ends[row], x = view.x[node], y = view.y[node];
    if (rowGoals[row] && view.radius >= 4) {
      const share = rowLevel[row] / (WHOLE * rowGoals[row]);
      pen.strokeStyle = rowMissing[row] ? paint.accent : paint.done;
      pen.lineWidth = rowMissing[row] ? 2 : 3;
      pen.beginPath();
      if (share > 0) pen.arc(x, y, r, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * share);
      pen.stroke();
    }
    if (waiting[row] && view.radius >= 8) {
      const text = String(waiting[row]), wide = 7 * text.length + 7;
      pen.fillStyle = paint.alarm;
      pen.beginPath();
      pen.roundRect(x + 0.75 * r, y - 1.1 * r - 7, wide, 14, 7);
      pen.fill();
      pen.fillStyle = paint.panel;
      pen.font = "600 10px system-ui, sans-serif";
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(text, x + 0.75 * r + wide / 2, y - 1.1 * r + 0.5);
    }
  }
}
function drawTokens(pen, hovered) {
  const r = Math.max(2.6, Math.min(9.5, 0.62 * view.radius)), labelled = active.length <= 160 && r >= 6.5;
  pen.lineWidth = 1.2;
  pen.strokeStyle = paint.panel;
  pen.font = `600 ${Math.round(1.15 * r)}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (const i of active) {
    const x = tokens.x[i], y = tokens.y[i];
    pen.fillStyle = colours[colourOf[i]];
    pen.beginPath();
    if (T.reduce[i]) pen.arc(x, y, r, 0, 2 * Math.PI); // what is added is round, what is copied square
    else pen.roundRect(x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r, 0.25 * r);
    pen.fill();
    if (r > 3) pen.stroke();
    const text = labelled ? String(T.chunk[i]) : "";
    if (text && text.length <= 2) {
      pen.fillStyle = inks[colourOf[i]];
      pen.fillText(text, x, y + 0.5);
    }
  }
  if (hovered !== null && hovered.transfer !== undefined && active.includes(hovered.transfer)) {
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(tokens.x[hovered.transfer], tokens.y[hovered.transfer], r + 3, 0, 2 * Math.PI);
    pen.stroke();
  }
}
function machineAt(x, y) {
  let best = null, nearest = 14 ** 2;
  for (const i of active) {
    const square = (tokens.x[i] - x) ** 2 + (tokens.y[i] - y) ** 2;
    if (square < nearest) [nearest, best] = [square, { transfer: i }];
  }
  if (best) return best;
  for (let node = 0; node < view.x.length; node++) {
    if (Math.hypot(view.x[node] - x, view.y[node] - y) <= Math.max(5, view.radius)) return { node };
  }
  nearest = 6 ** 2;
  for (let link = 0; link < view.curves.length; link++) {
    const c = view.curves[link];
    if (x < Math.min(c[0], c[2], c[4]) - 6 || x > Math.max(c[0], c[2], c[4]) + 6) continue;
    if (y < Math.min(c[1], c[3], c[5]) - 6 || y > Math.max(c[1], c[3], c[5]) + 6) continue;
    for (let share = 0.04; share < 1; share += 0.04) {
      const [cx, cy] = along(c, share), square = (cx - x) ** 2 + (cy - y) ** 2;
      if (square < nearest) [nearest, best] = [square, { link }];
    }
  }
  return best;
}
