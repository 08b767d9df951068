// What things are called. Names of users only ever become text.
const UNITS = [[1e12, "s"], [1e9, "ms"], [1e6, "us"], [1e3, "ns"], [1, "ps"]];
function timeText(ticks, digits = 4) {
  const ps = ticks * data.tick;
  if (ps === 0) return "0 us";
  const [factor, unit] = UNITS.find(([f]) => ps >= f) || UNITS[4];
  return `${Number((ps / factor).toPrecision(digits))} ${unit}`;
}
const [clockFactor, clockUnit] = UNITS.find(([f]) => duration * data.tick >= f) || UNITS[4];
const clockDigits = Math.max(0, 4 - Math.floor(Math.log10(Math.max(1, (duration * data.tick) / clockFactor))) - 1);
const clockText = (time) => `${((time * data.tick) / clockFactor).toFixed(clockDigits)}`;
function bytesText(bytes) {
  const plain = `${bytes.toLocaleString("en")} bytes`;
  if (bytes < 1024) return plain;
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toPrecision(4))} ${["", "KiB", "MiB", "GiB", "TiB"][power]} (${plain})`;
}
const short = (name) => (name.length > 40 ? `${name.slice(0, 38)}...` : name);
const nodeName = (node) => short(data.nodes.name[node]);
const endName = (row) => (row < data.ranks ? `rank ${row} (${nodeName(data.ends[row])})` : nodeName(data.ends[row]));
const linkName = (link) => {
  const L = data.links;
  return `${nodeName(L.src[link])} -> ${nodeName(L.dst[link])}${parallel[link] > 1 ? ` #${L.key[link]}` : ""}`;
};
function ranksText(which) { // a set of ranks, as runs
  let bits = BigInt(`0x${G.sets[which]}`);
  const runs = [];
  for (let rank = 0; bits > 0n; rank++, bits >>= 1n) {
    if (!(bits & 1n)) continue;
    const run = runs[runs.length - 1];
    if (run && run[1] === rank - 1) run[1] = rank;
    else runs.push([rank, rank]);
  }
  const shown = runs.slice(0, 6).map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`));
  const one = runs.length === 1 && runs[0][0] === runs[0][1];
  return `rank${one ? "" : "s"} ${shown.join(", ")}${runs.length > 6 ? ", ..." : ""}`;
}
const briefly = (i) => `#${i} (step ${T.step[i]}, ${T.src[i]} ${T.reduce[i] ? "=>" : "->"} ${T.dst[i]})`;
function transferWords(i) {
  const lines = [];
  const many = /[-,]/.test(data.chunk_texts[T.chunks[i]]);
  const what = T.src[i] === T.dst[i] ? "local" : T.reduce[i] ? "reduce" : "copy";
  lines.push(`step ${T.step[i]}, ${what}, chunk${many ? "s" : ""} ${data.chunk_texts[T.chunks[i]]}, channel ${T.channel[i]}`);
  lines.push(`${endName(T.src[i])} to ${endName(T.dst[i])}`);
  lines.push(bytesText(T.bytes[i]));
  if (T.carried[i] >= 0 && G.sets[T.carried[i]] !== "0") {
    lines.push(`${data.reduces ? "sum of" : data.operation === "barrier" ? "word of" : "data of"} ${ranksText(T.carried[i])}`);
  }
  lines.push(`ready ${timeText(ready[i])}, sent ${timeText(start[i])}, there ${timeText(end[i])} (takes ${timeText(end[i] - start[i])})`);
  const after = T.after[i];
  lines.push(after < 0 ? "ready from the start" : T.paced[i] ? `held back by pacing until ${briefly(after)}` : `ready when ${briefly(after)} was there`);
  if (T.waited[i] > 0) {
    const where = T.at[i] >= 0 ? ` for ${linkName(T.at[i])}` : "";
    lines.push(
      T.behind[i] >= 0
        ? `waited ${timeText(T.waited[i])}${where}, behind ${briefly(T.behind[i])}`
        : `took ${timeText(T.waited[i])} longer than alone, for it shared its links`,
    );
  }
  if (onCritical[i]) lines.push("on the critical path");
  return [`transfer #${i}`, lines];
}
function cellWords(c) {
  const row = Math.floor(c / columns), column = c % columns, isScratch = column >= dataColumns;
  const first = isScratch ? G.scratch : G.first, at = isScratch ? column - dataColumns : column;
  const span = first[at + 1] - first[at];
  let chunk = `${isScratch ? "scratch " : ""}chunk${span > 1 ? "s" : ""} ${first[at]}${span > 1 ? `-${first[at + 1] - 1}` : ""}`;
  if (data.operation === "barrier") chunk = "has heard of";
  const lines = [], sums = data.reduces || data.operation === "barrier";
  if (level[c] === 0) lines.push("nothing yet");
  else if (level[c] < 0) lines.push("data that is no part of the result here");
  else if (holds[c] >= 0) lines.push(`${sums ? (data.reduces ? "sum of" : "word of") : "data of"} ${ranksText(holds[c])}`);
  if (level[c] > 0 && level[c] < WHOLE && (holds[c] < 0 || sums)) lines.push(`${Number((level[c] / 10).toPrecision(3))} % of it is here`);
  if (goal[c]) lines.push(level[c] === WHOLE ? "complete: the result" : "must be here at the end");
  else lines.push("not needed at the end");
  return [`${endName(row)}, ${chunk}`, lines];
}
function nodeWords(node) {
  const row = data.ends.indexOf(node), lines = [`${data.nodes.kind[node]}${data.nodes.rank[node] >= 0 ? `, rank ${data.nodes.rank[node]}` : ""}`];
  if (row >= 0) {
    if (rowGoals[row]) lines.push(rowMissing[row] ? `${rowGoals[row] - rowMissing[row]} of ${rowGoals[row]} parts of the result are here` : "holds its whole result");
    if (waiting[row]) lines.push(`${waiting[row]} of its transfers wait for a link`);
  }
  return [nodeName(node), lines];
}
function linkWords(link) {
  const L = data.links, lines = [`${data.rates[L.rate[link]]}, latency ${L.latency[link] ? timeText(L.latency[link] / data.tick) : "0"}${L.kind.length && L.kind[link] ? `, ${short(L.kind[link])}` : ""}`];
  const now = active.filter((i) => {
    for (let h = hopsFrom[i]; h < hopsFrom[i + 1]; h++) if (H.link[h] === link && heldFrom[h] <= clock.time && heldTo[h] > clock.time) return true;
    return false;
  });
  lines.push(now.length ? `carries ${now.slice(0, 3).map(briefly).join(", ")}${now.length > 3 ? ` and ${now.length - 3} more` : ""}` : "idle");
  lines.push(linkUse[link].transfers ? `${linkUse[link].transfers} transfers in all, ${bytesText(linkUse[link].bytes)}` : "not used in this run");
  return [linkName(link), lines];
}
const onCritical = new Uint8Array(count);
for (const i of data.critical) onCritical[i] = 1;
const parallel = [], linkUse = [];
{
  const many = new Map(), L = data.links;
  const key = (link) => `${L.src[link]} ${L.dst[link]}`;
  for (let link = 0; link < L.src.length; link++) many.set(key(link), (many.get(key(link)) || 0) + 1);
  for (let link = 0; link < L.src.length; link++) {
    parallel.push(many.get(key(link)));
    linkUse.push({ transfers: 0, bytes: 0 });
  }
  for (let i = 0; i < count; i++) {
    for (let h = hopsFrom[i]; h < hopsFrom[i + 1]; h++) {
      linkUse[H.link[h]].transfers++;
      linkUse[H.link[h]].bytes += T.bytes[i];
    }
  }
}
