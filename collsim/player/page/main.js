// The clock, the controls, and what is drawn when.
const element = (id) => document.getElementById(id);
const root = document.documentElement, scrub = element("scrub"), tip = element("tip"), play = element("play");
const clock = { time: 0, playing: false, speed: 1, last: 0 };
const choice = { critical: false };
const SCRUB = Number(scrub.max), SLOWEST = 1 / 16, FASTEST = 16;
const seconds = Math.max(8, Math.min(40, 0.9 * data.steps)); // that the whole run takes on the screen at speed 1
let hovered = null, pointer = null, dirty = true, asked = false;

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
function dress() { // colours of the canvases come from the styles of the page
  const styles = getComputedStyle(root);
  for (const name of ["back", "panel", "ink", "muted", "edge", "wire", "cell", "node", "accent", "done", "alarm"]) {
    paint[name] = styles.getPropertyValue(`--${name}`).trim();
  }
  mixColours(isDark());
}
function layOut() {
  dress();
  placeTimeline();
  placeMachine();
  placeGrid();
  drawStill();
  wake();
}
function wake() {
  dirty = true;
  if (!asked) {
    asked = true;
    requestAnimationFrame(frame);
  }
}
function frame(now) {
  asked = false;
  if (clock.playing) {
    const passed = clock.last ? Math.min(0.1, (now - clock.last) / 1000) : 0; // a page in the background does not run ahead
    clock.last = now;
    clock.time = Math.min(duration, clock.time + (passed * clock.speed * duration) / seconds);
    if (clock.time >= duration) setPlaying(false);
    dirty = true;
  }
  if (dirty) draw();
  if (clock.playing) wake();
}
function draw() {
  dirty = false;
  contentsAt(clock.time);
  lookAt(clock.time);
  drawMachine(clock.time, hovered);
  drawChanges();
  outlineCells(hovered);
  drawTimeline(clock.time, hovered);
  scrub.value = String(duration ? Math.round((clock.time / duration) * SCRUB) : SCRUB);
  scrub.setAttribute("aria-valuetext", `${clockText(clock.time)} of ${clockText(duration)} ${clockUnit}`);
  element("clock").textContent = `${clockText(clock.time)} of ${clockText(duration)} ${clockUnit}`;
  element("progress").textContent = progressText();
  if (hovered !== null && hovered.transfer === undefined) fillTip(); // what a node or cell holds may have changed
}
function progressText() {
  const steps = `${stepsDone(clock.time)} of ${data.steps} step${data.steps === 1 ? "" : "s"} done`;
  return `${steps}, ${completeRanks()} of ${results} rank${results === 1 ? "" : "s"} complete`;
}
function say() {
  draw();
  element("said").textContent = `${element("clock").textContent}, ${progressText()}`;
}
function seek(time) {
  clock.time = Math.max(0, Math.min(duration, time));
  wake();
}
function setPlaying(playing) {
  if (playing && clock.time >= duration) clock.time = 0;
  clock.playing = playing;
  clock.last = 0;
  play.setAttribute("aria-label", playing ? "pause" : "play");
  element("play-shape").setAttribute("d", playing ? "M6 4h4.5v16H6zM13.5 4H18v16h-4.5z" : "M7 4v16l13-8z");
  wake();
}
function step(direction, borders) {
  setPlaying(false);
  const next = firstAfter(borders, clock.time);
  if (direction > 0) seek(next < borders.length ? borders[next] : duration);
  else {
    let before = next - 1;
    if (before >= 0 && borders[before] === clock.time) before--;
    seek(before >= 0 ? borders[before] : 0);
  }
  say();
}
function jump(time) {
  setPlaying(false);
  seek(time);
  say();
}
function setSpeed(speed) {
  clock.speed = Math.max(SLOWEST, Math.min(FASTEST, speed));
  element("speed").textContent = clock.speed >= 1 ? `${clock.speed}x` : `1/${1 / clock.speed}x`;
  element("slower").disabled = clock.speed <= SLOWEST;
  element("faster").disabled = clock.speed >= FASTEST;
}
function switchTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  layOut();
}
function switchCritical() {
  choice.critical = !choice.critical;
  element("critical").setAttribute("aria-pressed", String(choice.critical));
  drawChart();
  wake();
}

function fillTip() {
  const [title, lines] =
    hovered.transfer !== undefined ? transferWords(hovered.transfer)
    : hovered.cell !== undefined ? cellWords(hovered.cell)
    : hovered.node !== undefined ? nodeWords(hovered.node)
    : linkWords(hovered.link);
  const parts = [title, ...lines].map((text, i) => {
    const part = document.createElement(i ? "span" : "b");
    part.textContent = text;
    return part;
  });
  tip.replaceChildren(...parts);
}
function show(found, x, y) {
  const same = JSON.stringify(found) === JSON.stringify(hovered);
  hovered = found;
  tip.hidden = found === null;
  if (found !== null) {
    if (!same) fillTip();
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > window.innerWidth ? x - 14 - box.width : x + 16;
    const top = y + 14 + box.height > window.innerHeight ? y - 12 - box.height : y + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }
  if (!same) wake();
}
for (const [canvas, find] of [[machine, machineAt], [grid, gridAt], [timeline, timelineAt]]) {
  const look = (event) => {
    const box = canvas.getBoundingClientRect();
    show(find(event.clientX - box.left, event.clientY - box.top), event.clientX, event.clientY);
  };
  canvas.addEventListener("pointermove", look);
  canvas.addEventListener("pointerdown", look);
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(null));
}
const seekTo = (event) => {
  setPlaying(false);
  seek(toTime(event.clientX - timeline.getBoundingClientRect().left));
};
timeline.addEventListener("pointerdown", (event) => {
  pointer = event.pointerId;
  timeline.setPointerCapture(pointer);
  seekTo(event);
});
timeline.addEventListener("pointermove", (event) => event.pointerId === pointer && seekTo(event));
for (const name of ["pointerup", "pointercancel"]) timeline.addEventListener(name, () => { pointer = null; });
document.addEventListener("pointerdown", (event) => event.target.tagName !== "CANVAS" && show(null));

scrub.addEventListener("input", () => {
  setPlaying(false);
  const share = Number(scrub.value) / SCRUB;
  seek(share >= 1 ? duration : share * duration);
});
const presses = {
  play: () => setPlaying(!clock.playing),
  first: () => jump(0),
  last: () => jump(duration),
  back: (event) => step(-1, event.shiftKey ? arrivals : stepBorders),
  forward: (event) => step(1, event.shiftKey ? arrivals : stepBorders),
  slower: () => setSpeed(clock.speed / 2),
  faster: () => setSpeed(clock.speed * 2),
  theme: switchTheme,
  critical: switchCritical,
};
for (const [id, press] of Object.entries(presses)) {
  element(id).addEventListener("click", (event) => {
    press(event);
    if (event.detail) element(id).blur(); // after a click with a pointer the space bar plays again
  });
}
const keys = {
  " ": presses.play, ArrowLeft: presses.back, ArrowRight: presses.forward, Home: presses.first, End: presses.last,
  "+": presses.faster, "=": presses.faster, "-": presses.slower, _: presses.slower, d: presses.theme, c: presses.critical,
  Escape: () => show(null),
};
document.addEventListener("keydown", (event) => {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, key)) return;
  if (key === " " && event.target.tagName === "BUTTON") return; // the button that is focused is pressed
  event.preventDefault();
  keys[key](event);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", layOut);
// Laying out may change the height of the page; that alone is no reason to do it again, or it would never end.
let widthLaidOut = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === widthLaidOut) return;
  widthLaidOut = document.body.clientWidth;
  requestAnimationFrame(layOut);
}).observe(document.body);
window.addEventListener("resize", layOut);

{
  const facts = [data.size + " on " + short(data.topology), `${data.network} network`, `${timeText(duration)}${data.busbw ? `, busbw ${data.busbw}` : ""}`];
  if (data.theory_us !== null) facts.push(`theory ${timeText((data.theory_us * 1e6) / data.tick)}${data.theory_holds ? "" : " (need not be exact here)"}`);
  facts.push(`bound ${timeText((data.bound_us * 1e6) / data.tick)} (efficiency ${(100 * data.efficiency).toFixed(1)} %)`, data.proof);
  element("title").textContent = `${data.title} on ${data.ranks} rank${data.ranks === 1 ? "" : "s"}`;
  element("facts").textContent = facts.join(" | ");
  element("made").textContent = `${count.toLocaleString("en")} transfers, collsim ${data.version}`;
  const caption = ["the arc around a rank is how much of its result it holds"];
  const kinds = new Set(T.reduce);
  if (kinds.size > 1) caption.unshift("round chunks are added up on arrival, square ones copied");
  if (T.start.some((wait) => wait > 0)) caption.push("an orange number counts transfers that wait there for a link");
  element("caption").textContent = `${caption.join("; ")}.`;
  gridTexts();
  setSpeed(1);
  layOut();
}
