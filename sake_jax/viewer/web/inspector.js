// What is known of one token: its candidates when it was written, and what repels it.

const inspector = document.getElementById("inspector");
let chosen = null; // {canvas, cell}
let held = false;
const PADDING = 20; // pixels below a text, which may be covered

function choose(node, hold) {
  const canvas = canvases.find(({ text }) => text.contains(node));
  if (!canvas) return;
  chosen = { canvas, cell: node.cell };
  held = hold;
  drawInspector();
  if (held) uncover(node);
}

function release() {
  chosen = null;
  held = false;
  drawInspector();
}

function drawInspector() {
  for (const node of document.querySelectorAll(".chosen, .repels")) {
    node.classList.remove("chosen", "repels");
  }
  inspector.hidden = !chosen;
  inspector.classList.toggle("held", held);
  if (!chosen) return;
  const { canvas, cell } = chosen;
  cell.node.classList.add("chosen");
  inspector.replaceChildren(...about(canvas, cell));
  const close = make("button", "close", "×");
  close.type = "button";
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", release);
  inspector.append(close);
  placeInspector(canvas, cell.node.getBoundingClientRect());
}

/** Where it hides no token that it speaks of: below the text, or over the other one, or near. */
function placeInspector({ text }, token) {
  const box = inspector.getBoundingClientRect();
  const around = text.parentElement.getBoundingClientRect();
  const wide = document.documentElement.clientWidth;
  const fits = (top) => top > 0 && top + box.height < window.innerHeight;
  let left = Math.min(token.left, wide - box.width - 8);
  let top = Math.min(around.bottom + 8, window.innerHeight - box.height - 8);
  if (top < around.bottom - PADDING) {
    const [before, after] = [around.left - box.width - 8, around.right + 8];
    const beside = after + box.width < wide ? after : before > 0 ? before : null;
    left = beside ?? left;
    top = beside === null ? token.bottom + 10 : Math.max(8, token.top - box.height / 2);
    if (!fits(top)) top = Math.max(8, Math.min(token.top, window.innerHeight) - box.height - 10);
  }
  inspector.style.setProperty("--left", `${Math.max(8, left)}px`);
  inspector.style.setProperty("--top", `${top}px`);
}

/** Brings a token out from under the sheet that a small screen has. */
function uncover(node) {
  const hidden = node.getBoundingClientRect().bottom - inspector.getBoundingClientRect().top;
  if (narrow.matches && hidden > -16) window.scrollBy(0, hidden + 48);
}

function about(canvas, cell) {
  if (cell.kind === "given") return [heading(cell.given), make("p", "note", "Given, not written.")];
  if (cell.kind === "open") return [make("p", "note", `Not written after step ${state.step}.`)];
  const { row } = canvas;
  const token = row.token[cell.event];
  const details = row.details[cell.event];
  const told = [heading(token), make("p", "note", numbers(canvas, cell, details))];
  if (!details) {
    const again = "Written again later: candidates are kept for the last writing only.";
    return [...told, make("p", "note", again)];
  }
  const [before, after, repel, , samples] = details;
  const same = String(before) === String(after);
  const lists = make("div", "lists");
  if (!same) lists.append(listOf("before guidance", before, token));
  lists.append(listOf(same ? "candidates" : "after guidance", after, token));
  const others = repulsionOfSamples(canvas, cell.column, samples);
  return [...told, lists, ...repulsion(canvas, repel), ...others];
}

function heading(token) {
  const title = make("h3", "", cut(token)[1]);
  const kind = data.special.includes(token) ? "special token" : "token";
  if (data.words) title.append(make("small", "", ` ${kind} ${data.ids[token]}`));
  return title;
}

function numbers({ run, row }, cell, details) {
  const chance = row.chance[cell.event];
  const lowest = details && details[1].length ? shown(candidates(details[1]).at(-1)[1]) : null;
  const unknown = lowest === null ? "probability not known" : `probability below ${lowest}`;
  const parts = [
    `step ${row.step[cell.event] + 1} of ${data.runs[run].steps}`,
    chance === null ? unknown : `probability ${shown(probability(chance))}`,
  ];
  if (details) parts.push(`entropy ${shown(details[3])} nats`);
  if (row.text[cell.column] === "0") parts.push("after the text's end");
  return parts.join(", ");
}

function listOf(title, flat, token) {
  const box = make("div", "list");
  box.append(make("h4", "", title));
  for (const [candidate, p] of candidates(flat)) {
    const line = make("div", candidate === token ? "line drawn" : "line");
    line.style.setProperty("--p", p.toFixed(4));
    const said = cut(candidate)[1];
    line.append(make("span", "piece", candidate === token ? `▸ ${said}` : said));
    line.append(make("span", "number", p.toFixed(3)));
    box.append(line);
  }
  return box;
}

/** Highlights the rows that repel a token, and lists them. */
function repulsion({ cells }, flat) {
  const box = make("p", "repellers", "Repelled by ");
  for (const [column, weight, part] of weighed(flat)) {
    const cell = cells.find((other) => other.column === column);
    if (!cell) continue;
    light(cell, part);
    const said = cell.kind === "open" ? `column ${column + 1}` : cell.node.textContent;
    box.append(repeller(said, weight), " ");
  }
  return flat.length ? [box] : [];
}

/** The samples that repel a token where it stands, with what they say there at this step. */
function repulsionOfSamples({ run }, column, flat) {
  const box = make("p", "repellers", "Repelled by other samples here ");
  for (const [sample, weight, part] of weighed(flat)) {
    const beside = canvases.find((other) => other.run === run && other.sample === sample);
    if (beside) light(beside.cells.find((cell) => cell.column === column), part);
    box.append(repeller(`sample ${sample + 1}: ${wordOf(run, sample, column)}`, weight), " ");
  }
  return flat.length ? [box] : [];
}

/** [[place, weight, part of the largest weight], ...] of a flat list. */
function weighed(flat) {
  const found = [];
  for (let at = 0; at < flat.length; at += 2) {
    found.push([flat[at], flat[at + 1], flat[at + 1] / flat[1]]);
  }
  return found;
}

function light({ node }, part) {
  node.classList.add("repels");
  node.style.setProperty("--weight", part.toFixed(3));
}

function repeller(said, weight) {
  const line = make("span", "repeller", said);
  line.append(make("span", "number", ` ${shown(weight)}`));
  return line;
}

function wordOf(run, sample, column) {
  const row = rowOf(run, sample);
  const event = writings(row, data.runs[run].columns, state.step)[column];
  const written = event >= 0 && row.token[event] !== data.runs[run].mask;
  return written ? cut(row.token[event])[1] : "not written";
}
