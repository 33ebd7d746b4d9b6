// Controls: what is shown, which step, and who listens to which key.

const slider = document.getElementById("slider");
const play = document.getElementById("play");
const texts = document.getElementById("texts");
const narrow = matchMedia("(max-width: 40rem)"); // a sheet under the pointer would take its click
let timer = null;

function rebuild() {
  release();
  buildCanvases();
  buildCharts();
  drawChoices();
  draw();
}

function draw() {
  slider.value = state.step;
  slider.setAttribute("aria-valuetext", `step ${state.step} of ${lastStep}`);
  document.getElementById("count").textContent = `${state.step} / ${lastStep}`;
  drawCanvases();
  drawCharts();
  drawMaps();
  drawInspector();
}

function goTo(step) {
  state.step = Math.min(Math.max(step, 0), lastStep);
  draw();
}

function toggle() {
  if (timer) return pause();
  if (state.step >= lastStep) state.step = 0;
  const pace = Math.min(Math.max(8000 / Math.max(lastStep, 1), 40), 250);
  timer = setInterval(() => {
    goTo(state.step + 1);
    if (state.step >= lastStep) pause();
  }, pace);
  drawPlay();
}

function pause() {
  clearInterval(timer);
  timer = null;
  drawPlay();
}

function drawPlay() {
  play.setAttribute("aria-label", timer ? "Pause" : "Play");
  play.firstElementChild.textContent = timer ? "❚❚" : "▶";
}

function fill(id, options) {
  const select = document.getElementById(id);
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  document.getElementById(`${id}-choice`).hidden = options.length < 2;
  select.addEventListener("change", () => {
    state.pair = null;
    state[id] = id === "shown" ? select.value : Number(select.value);
    rebuild();
  });
}

function drawChoices() {
  for (const id of ["prompt", "sample", "shown"]) document.getElementById(id).value = state[id];
  const note = document.getElementById("pair");
  note.hidden = !state.pair;
  if (!state.pair) return;
  const [i, j] = state.pair.samples;
  note.firstElementChild.textContent = `Samples ${i + 1} and ${j + 1}, side by side.`;
}

function drawLegend() {
  document.documentElement.dataset.colour = state.colour;
  const [low, high] = { confidence: ["sure", "unlikely"], entropy: ["0", `${MOST}+ nats`] }[state.colour];
  document.getElementById("low").textContent = low;
  document.getElementById("high").textContent = high;
}

function walk(from, by) {
  const { cells } = canvases.find(({ text }) => text.contains(from));
  const next = cells[cells.indexOf(from.cell) + by];
  if (!next) return;
  from.tabIndex = -1;
  next.node.tabIndex = 0;
  next.node.focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const on = event.target;
  const token = on.cell ? on : null;
  const keeps = on.tagName === "SELECT" || (on === slider && event.key !== " ");
  if (event.key === "Escape") {
    release();
    if (token) slider.focus();
  } else if (keeps || (on.tagName === "BUTTON" && [" ", "Enter"].includes(event.key))) return;
  else if (event.key === "Enter" && token) choose(token, !held);
  else if (token && event.key === "ArrowLeft") walk(token, -1);
  else if (token && event.key === "ArrowRight") walk(token, 1);
  else if (event.key === "ArrowLeft") goTo(state.step - 1);
  else if (event.key === "ArrowRight") goTo(state.step + 1);
  else if (event.key === "Home") goTo(0);
  else if (event.key === "End") goTo(lastStep);
  else if (event.key === " ") toggle();
  else return;
  event.preventDefault();
}

function listen() {
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  play.addEventListener("click", toggle);
  document.addEventListener("keydown", onKey);
  document.getElementById("unpair").addEventListener("click", () => {
    state.pair = null;
    rebuild();
  });
  document.getElementById("colour").addEventListener("change", (event) => {
    state.colour = event.target.value;
    drawLegend();
    draw();
  });
  listenToTheme();
  texts.addEventListener("pointerover", (event) => {
    const glance = event.pointerType === "mouse" && !narrow.matches && !held;
    if (glance && event.target.cell) choose(event.target, false);
  });
  texts.addEventListener("pointerleave", () => held || release());
  texts.addEventListener("focusin", ({ target }) => {
    if (!held && target.cell && target.matches(":focus-visible")) choose(target, false);
  });
  document.addEventListener("click", (event) => {
    if (event.target.cell) choose(event.target, true);
    else if (held && !inspector.contains(event.target) && !event.target.closest("#controls")) release();
  });
  addEventListener("resize", drawInspector);
  addEventListener("scroll", () => held || release(), { passive: true });
}

function begin() {
  const counts = [`${lastStep} steps`, `${data.samples} sample${data.samples > 1 ? "s" : ""}`];
  document.getElementById("summary").textContent = counts.join(", ");
  const verdict = document.getElementById("verdict");
  verdict.hidden = !data.note;
  verdict.textContent = data.note;
  document.body.classList.toggle("ids", !data.words);
  slider.max = lastStep;
  const words = (tokens) => tokens.filter((token) => !data.special.includes(token));
  const title = ({ tokens }) => {
    const pieces = words(tokens).map((token) => data.pieces[token]);
    return pieces.join(data.words ? "" : " ");
  };
  fill("prompt", data.prompts.map((prompt, at) => [at, title(prompt).slice(0, 60) || "(empty)"]));
  fill("sample", Array.from({ length: data.samples }, (_, at) => [at, `${at + 1} of ${data.samples}`]));
  const runs = data.runs.map(({ name }, at) => [String(at), name]);
  fill("shown", runs.length > 1 ? [["both", "side by side"], ...runs] : runs);
  listen();
  buildMaps();
  drawLegend();
  state.step = lastStep;
  rebuild();
}

begin();
