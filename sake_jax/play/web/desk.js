// Settings: controls, the address that carries them, and what the server is asked with.

const about = JSON.parse(document.getElementById("about").textContent);
const settings = { ...about.settings };
const asked = new URLSearchParams(location.search);
const token = asked.get("token");
const control = Object.fromEntries(
  ["prompt", "guidance", "strength", "temperature", "bandwidth", "order", "seed", "samples", "length"].map(
    (name) => [name, document.getElementById(name)],
  ),
);
const median = document.getElementById("median");
const mark = document.getElementById("mark");
const MIDDLE = 3; // where the bandwidth's slider begins: 2 to that power

/** What the address says goes before what the command said; a wrong name is for the server. */
function readAddress() {
  for (const [name, value] of asked) {
    if (name !== "token") settings[name] = value === "" && name !== "prompt" ? null : value;
  }
}

/** All settings, as an address has them; an empty one is left to the server. */
function query() {
  const parts = Object.entries(settings).map(([name, value]) => [name, value ?? ""]);
  if (token !== null) parts.push(["token", token]);
  return new URLSearchParams(parts).toString();
}

/** Whether the chosen guidance has a use for an option that only some have. */
function takes(option) {
  const chosen = settings.guidance.split("+");
  return about.takers[option].some((name) => chosen.includes(name));
}

function digits(value) {
  return String(Number(Number(value).toPrecision(3)));
}

/** Shows the settings. Sliders stand near them: an address may hold more digits, or a value
 * beyond a slider's ends. */
function drawDesk() {
  for (const name of ["prompt", "seed", "samples", "length"]) show(control[name], settings[name] ?? "");
  for (const name of ["guidance", "order"]) pick(control[name], settings[name]);
  for (const name of ["strength", "temperature"]) {
    const value = Number(settings[name]);
    control[name].max = Math.max(control[name].max, value || 0);
    control[name].min = Math.min(control[name].min, value || 0);
    show(control[name], value);
    sayValue(name, digits(settings[name]));
  }
  const kernel = takes("bandwidth");
  const width = settings.bandwidth;
  document.getElementById("bandwidth-control").classList.toggle("off", !kernel);
  median.disabled = !kernel;
  control.bandwidth.disabled = !kernel;
  median.checked = width === null;
  control.bandwidth.classList.toggle("unused", width === null);
  if (width !== null) show(control.bandwidth, Math.log2(width));
  sayValue("bandwidth", !kernel ? "none" : width === null ? "median" : digits(width));
  control.strength.disabled = settings.guidance === "none";
}

/** Leaves a control alone that says so already: the caret of somebody who types stays. */
function show(node, value) {
  if (node.value !== String(value)) node.value = value;
}

/** Chooses in a list, which gets what an address has and the list has not. */
function pick(list, value) {
  if (![...list.options].some((option) => option.value === value)) list.add(new Option(value, value));
  list.value = value;
}

function sayValue(name, text) {
  document.querySelector(`output[for="${name}"]`).textContent = text;
  control[name].setAttribute("aria-valuetext", text);
}

/** Settings from the controls, of which one was touched. */
function readDesk(touched) {
  const { bandwidth, guidance } = control;
  if (touched === median) settings.bandwidth = median.checked ? null : bandwidthOfSlider();
  else if (touched === bandwidth) settings.bandwidth = bandwidthOfSlider();
  else settings[touched.id] = touched.value;
  if (touched !== guidance) return;
  // What a guidance cannot have is left out, and what it must have is there.
  for (const option in about.takers) if (!takes(option)) settings[option] = null;
  if (guidance.value.includes("paper")) settings.bandwidth ??= bandwidthOfSlider();
}

function bandwidthOfSlider() {
  return digits(2 ** control.bandwidth.value);
}

function beginDesk() {
  document.getElementById("model").textContent = about.model;
  for (const [name, [least, most]] of Object.entries(about.bounds)) {
    if (control[name]?.type !== "number") continue;
    if (least !== null) control[name].min = least;
    if (most !== null) control[name].max = most;
  }
  control.bandwidth.value = MIDDLE;
  readAddress();
  drawDesk();
}
