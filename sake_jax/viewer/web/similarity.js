// How alike the samples of a prompt are at a step: pairs of neighbouring tokens that two share,
// of those that either has.

let maps = [];

function buildMaps() {
  const place = document.getElementById("maps");
  place.replaceChildren();
  place.hidden = data.samples < 2;
  if (place.hidden) return;
  maps = data.runs.map((run, at) => buildMap(run, at, place));
}

function buildMap(run, at, place) {
  const box = make("figure", "map");
  const title = data.runs.length > 1 ? `Similarity of samples, ${run.name}` : "Similarity of samples";
  const note = make("p", "note");
  const grid = make("div", data.samples > 10 ? "grid dense" : "grid");
  grid.style.setProperty("--samples", data.samples);
  const cells = [];
  grid.append(make("span", "head"));
  for (let j = 0; j < data.samples; j++) grid.append(make("span", "head", String(j + 1)));
  for (let i = 0; i < data.samples; i++) {
    grid.append(make("span", "head", String(i + 1)));
    for (let j = 0; j < data.samples; j++) {
      const cell = make("button", i === j ? "cell own" : "cell");
      cell.type = "button";
      cell.addEventListener("click", () => open(at, i, j));
      cells.push(cell);
      grid.append(cell);
    }
  }
  box.append(make("h3", "", title), note, grid);
  place.append(box);
  return { run: at, cells, note };
}

/** Shows two samples, or one where a cell of the diagonal is asked for. */
function open(run, i, j) {
  state.pair = i === j ? null : { run, samples: [i, j] };
  if (i === j) {
    state.sample = i;
    state.shown = state.shown === "both" ? "both" : String(run);
  }
  rebuild();
  document.getElementById(state.pair ? "pair" : "texts").scrollIntoView({ block: "nearest" });
}

function bigrams(run, sample) {
  const row = rowOf(run, sample);
  const { columns, mask } = data.runs[run];
  const now = writings(row, columns, state.step);
  const found = new Set();
  const token = (c) => (now[c] < 0 || row.text[c] === "0" ? null : row.token[now[c]]);
  for (let c = 1; c < columns; c++) {
    const [left, right] = [token(c - 1), token(c)];
    if (left === null || right === null || left === mask || right === mask) continue;
    found.add(left * data.pieces.length + right);
  }
  return found;
}

function overlap(one, other) {
  let both = 0;
  for (const pair of one) if (other.has(pair)) both++;
  const either = one.size + other.size - both;
  return either ? both / either : 0;
}

function drawMaps() {
  if (data.samples < 2) return;
  const count = data.samples;
  for (const { run, cells, note } of maps) {
    const sets = Array.from({ length: count }, (_, sample) => bigrams(run, sample));
    let total = 0;
    cells.forEach((cell, at) => {
      const [i, j] = [Math.floor(at / count), at % count];
      const value = i === j ? 1 : overlap(sets[i], sets[j]);
      if (i !== j) total += value;
      drawMapCell(cell, i, j, value, run);
    });
    const mean = total / (count * (count - 1));
    note.textContent = `shared bigrams after step ${state.step}, mean ${mean.toFixed(3)}`;
  }
}

function drawMapCell(cell, i, j, value, run) {
  const here = panels().filter((panel) => panel.run === run).map(({ sample }) => sample);
  const now = state.pair ? here.includes(i) && here.includes(j) && i !== j : i === j && here.includes(i);
  cell.style.setProperty("--level", value.toFixed(3));
  cell.textContent = i === j ? "" : value.toFixed(2).replace(/^0/, "");
  cell.classList.toggle("now", now);
  const said = i === j ? `show sample ${i + 1}` : `samples ${i + 1} and ${j + 1}, ${value.toFixed(2)} shared`;
  cell.setAttribute("aria-label", said);
}
