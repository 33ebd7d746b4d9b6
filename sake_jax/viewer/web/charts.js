// Small curves by step, of the rows on the screen, with the present step marked.

const WIDE = 260;
const HIGH = 96;
const LEFT = 40; // room for the scale
const CHARTS = [
  {
    title: "Entropy before → after, nats",
    note: "open positions; dashed: before",
    solid: "entropy",
    dashed: "base_entropy",
  },
  {
    title: "Push towards likely tokens",
    note: "above 0 guidance sharpens, below 0 it flattens: Cov[z, ψ]",
    solid: "covariance",
  },
  { title: "How far guidance moved the odds", note: "a KL divergence, in nats", solid: "kl" },
  { title: "Tokens written at a step", note: "click or drag a curve to go there", solid: "revealed" },
];
const SVG = "http://www.w3.org/2000/svg";
let charts = [];

function svg(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent?.append(node);
  return node;
}

function buildCharts() {
  const place = document.getElementById("charts");
  place.replaceChildren();
  charts = [];
  for (const chart of CHARTS) {
    const lines = panels().map((panel, at) => lineOf(chart, panel, at));
    if (lines.every(({ solid }) => !solid)) continue;
    const box = make("figure", "chart");
    const readings = make("div", "readings");
    const words = [make("h3", "", chart.title), make("p", "note", chart.note)];
    box.append(...words, plot(chart, lines), readings);
    place.append(box);
    charts.push({ chart, lines, box, readings, marks: box.querySelector(".marks") });
  }
}

function lineOf(chart, panel, at) {
  const { curves } = rowOf(panel.run, panel.sample);
  return { at, name: shortName(panel), solid: curves[chart.solid], dashed: curves[chart.dashed] };
}

function plot(chart, lines) {
  const values = lines.flatMap(({ solid, dashed }) => [...(solid ?? []), ...(dashed ?? [])]);
  const known = values.filter((value) => value !== null);
  const low = Math.min(0, ...known);
  const high = Math.max(low + 1e-9, ...known);
  const picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", class: "plot" });
  picture.setAttribute("aria-label", `${chart.title} by step, from ${shown(low)} to ${shown(high)}`);
  const scale = (value) => 10 + (HIGH - 20) * (1 - (value - low) / (high - low));
  picture.scale = scale;
  const apart = (value) => [low, high].every((end) => Math.abs(scale(value) - scale(end)) > 12);
  for (const value of new Set([low, ...[0].filter(apart), high])) {
    svg("text", { x: LEFT - 8, y: scale(value) + 4 }, picture).textContent = shown(value);
  }
  svg("line", { x1: LEFT, x2: WIDE, y1: scale(0), y2: scale(0), class: "zero" }, picture);
  for (const { at, solid, dashed } of lines) {
    if (dashed) svg("path", { d: path(dashed, scale), class: `curve dashed curve-${at}` }, picture);
    if (solid) svg("path", { d: path(solid, scale), class: `curve curve-${at}` }, picture);
  }
  svg("g", { class: "marks" }, picture);
  picture.addEventListener("pointerdown", (event) => goTo(stepAt(picture, event)));
  picture.addEventListener("pointermove", (event) => {
    if (event.buttons) goTo(stepAt(picture, event));
  });
  return picture;
}

function across(step) {
  return LEFT + ((WIDE - LEFT - 5) * step) / Math.max(lastStep, 1);
}

function stepAt(picture, event) {
  const box = picture.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * WIDE;
  return Math.round(((x - LEFT) / (WIDE - LEFT - 5)) * lastStep);
}

function path(values, scale) {
  let pen = "M";
  let drawn = "";
  values.forEach((value, at) => {
    if (value === null) pen = "M";
    else {
      drawn += `${pen}${across(at + 1).toFixed(1)} ${scale(value).toFixed(1)}`;
      pen = "L";
    }
  });
  return drawn;
}

function drawCharts() {
  for (const { chart, lines, box, readings, marks } of charts) {
    const picture = box.querySelector("svg");
    marks.replaceChildren();
    const x = across(state.step);
    svg("line", { x1: x, x2: x, y1: 0, y2: HIGH, class: "now" }, marks);
    readings.replaceChildren();
    for (const { at, name, solid, dashed } of lines) {
      const value = solid?.[state.step - 1] ?? null;
      if (value !== null) marker(at, x, picture.scale(value), marks);
      const before = dashed ? `${shown(dashed[state.step - 1])} → ` : "";
      const line = make("p", "reading");
      line.append(make("span", `mark mark-${at}`), make("span", "name", name));
      line.append(make("span", "number", `${before}${shown(value)}`));
      readings.append(line);
    }
  }
}

/** A dot for the first row, a square for the second: colour is not all that tells them apart. */
function marker(at, x, y, parent) {
  const shape = { class: `point point-${at}` };
  if (at === 0) svg("circle", { ...shape, cx: x, cy: y, r: 4 }, parent);
  else svg("rect", { ...shape, x: x - 3.5, y: y - 3.5, width: 7, height: 7 }, parent);
}
