// Writing: a run begins when a setting changes, and the one before it ends.

const narrow = matchMedia("(max-width: 60rem)");
const PAUSE = { slide: 60, type: 400, compile: 500 }; // milliseconds of quiet before something happens
const button = { write: document.getElementById("write"), save: document.getElementById("save") };
let runs = 0; // that were begun
let running = null; // what ends the run that is being written
let waiting = null; // for quiet
let painting = false;
let following = true; // whether the newest step is shown
let spent = null; // milliseconds of steps, and programs that were made

function writeSoon(quiet) {
  waitNoMore();
  waiting = setTimeout(write, quiet);
}

function waitNoMore() {
  clearTimeout(waiting);
  waiting = null;
}

async function write() {
  waitNoMore();
  runs++;
  running?.abort();
  const mine = (running = new AbortController());
  history.replaceState(null, "", `?${query()}`);
  tellProblem(null);
  drawBusy();
  const slow = setTimeout(() => tell("Compiling a program for this choice, once …"), PAUSE.compile);
  try {
    const answer = await ask("write", mine.signal);
    let tree = null;
    spent = { compiled: 0, traced: 0, milliseconds: [] };
    for await (const event of eventsOf(answer.body)) {
      if (mine.signal.aborted) return; // what was on its way
      if (event.kind === "begin") {
        tree = beginning(event);
        if (!data.runs.length) adopt(tree); // better than nothing
      } else if (event.kind === "end") speak("Written.");
      else if (event.kind === "error") throw new Error(event.error);
      else if (event.kind === "step") {
        clearTimeout(slow);
        takeStep(tree, event);
      }
    }
  } catch (error) {
    if (!mine.signal.aborted) tellProblem(error.message);
  } finally {
    clearTimeout(slow);
    if (running === mine) {
      running = null;
      drawBusy();
    }
  }
}

/** Asks the server with all settings; its refusals are errors in its own words. */
async function ask(what, signal) {
  let answer;
  try {
    answer = await fetch(`${what}?${query()}`, { signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("play does not answer; start `sake-jax play` again.");
  }
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}

/** Puts a run on the screen. */
function adopt(tree) {
  data = tree;
  state.step = 0;
  following = true;
  buildStage();
  paint();
}

/** The texts of the run before stay until there is a first step to show. */
function takeStep(tree, event) {
  grow(tree, event);
  if (data !== tree) adopt(tree);
  spent.compiled += event.compiled ?? 0;
  spent.traced += event.traced ?? 0;
  if (!event.compiled && !event.traced) {
    spent.milliseconds.push(event.runs.map((run) => run.milliseconds));
  }
  if (following) state.step = event.step + 1;
  paint();
}

/** Draws once for all that came since the last frame. */
function paint() {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => {
    painting = false;
    drawStage();
    if (data.runs[0].taken) drawSpent();
  });
}

function drawSpent() {
  const times = data.runs.map((_, run) => middle(spent.milliseconds.map((each) => each[run])));
  const [guided, plain] = times.map((time) => (time === null ? "…" : `${time.toFixed(time < 10 ? 1 : 0)} ms`));
  const both = data.runs.length > 1 ? `${guided} a step with guidance, ${plain} without` : `${guided} a step`;
  const none = !spent.compiled && !spent.traced;
  const programs = `${spent.compiled} programs compiled, once for this choice`;
  tell(`${both}; ${none ? "nothing compiled" : programs}`);
}

function middle(values) {
  if (!values.length) return null;
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

function tell(text) {
  document.getElementById("status").textContent = text;
}

/** For those who listen: what is told at every step would be too much. */
function speak(text) {
  document.getElementById("spoken").textContent = text;
}

function tellProblem(text) {
  const problem = document.getElementById("problem");
  problem.hidden = !text;
  problem.textContent = text ?? "";
  if (text) tell("");
}

function drawBusy() {
  button.write.textContent = running ? "Stop" : "Write";
  texts.setAttribute("aria-busy", running !== null);
  document.body.classList.toggle("writing", running !== null);
  document.getElementById("said").hidden = running !== null || !data.runs.length;
  if (running) return;
  for (const { box } of canvases) box.style.minHeight = "";
  if (data.runs.length) paint();
}

function stop() {
  waitNoMore();
  running?.abort();
  running = null;
  drawBusy();
}

async function save() {
  const label = button.save.textContent;
  button.save.disabled = true;
  button.save.textContent = "Saving …";
  try {
    const page = await (await ask("page")).blob();
    const file = make("a");
    file.href = URL.createObjectURL(page);
    file.download = "run.html";
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), 60_000);
  } catch (error) {
    tellProblem(error.message);
  } finally {
    button.save.disabled = false;
    button.save.textContent = label;
  }
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    tell("Link copied: it holds all settings.");
    speak("Link copied.");
  } catch {
    tell("Copy the address of this page: it holds all settings."); // no clipboard for this page
  }
}

function nextSeed() {
  const [, most] = about.bounds.seed;
  return Number(settings.seed) < most ? Number(settings.seed) + 1 : 0;
}

function touch(event) {
  const { target } = event;
  if (target === mark || target === slider) return;
  readDesk(target);
  drawDesk();
  const slides = target.type === "range" || target.tagName === "SELECT" || target === median;
  writeSoon(slides ? PAUSE.slide : PAUSE.type);
}

function listen() {
  listenToTheme();
  for (const node of [...Object.values(control), median]) node.addEventListener("input", touch);
  document.getElementById("beginning").addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) stop();
    else write();
  });
  control.prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    write();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  document.getElementById("again").addEventListener("click", () => {
    settings.seed = nextSeed();
    drawDesk();
    write();
  });
  document.getElementById("link").addEventListener("click", copyLink);
  button.save.addEventListener("click", save);
  mark.addEventListener("change", () => {
    document.documentElement.dataset.mark = mark.value;
    paint();
  });
  narrow.addEventListener("change", foldSettings);
  slider.addEventListener("input", () => {
    const newest = Math.max(...data.runs.map((run) => run.taken));
    state.step = Math.min(Number(slider.value), newest);
    following = state.step === newest;
    paint();
  });
}

/** Where there is no room beside the texts, settings are folded; elsewhere nothing unfolds them. */
function foldSettings() {
  document.getElementById("settings").open = !narrow.matches;
}

function begin() {
  beginDesk();
  document.documentElement.dataset.mark = mark.value;
  foldSettings();
  listen();
  write();
}

begin();
