// Texts that fill in. A column that is not written keeps the room of the token to come.

const MOST = 4; // nats of entropy that are coloured in full
let canvases = [];

function visible(piece) {
  return piece.replace(/\n/g, NEWLINE).replace(/\t/g, "⇥") || "∅";
}

const SPECIAL = "▪"; // a token that is no text: the inspector has its name

/** A token's piece as [space before it, what is seen]. */
function cut(token, short = false) {
  const piece = data.pieces[token];
  if (data.special.includes(token)) return ["", short ? SPECIAL : nameOfSpecial(piece)];
  if (!data.words) return [" ", piece];
  if (/^ +$/.test(piece)) return ["", "␣".repeat(piece.length)];
  return piece.startsWith(" ") ? [" ", visible(piece.slice(1))] : ["", visible(piece)];
}

function buildCanvases() {
  const place = document.getElementById("texts");
  place.replaceChildren();
  canvases = panels().map((panel, at) => {
    const row = rowOf(panel.run, panel.sample);
    const box = make("article", "panel");
    const title = make("h2", "", nameOf(panel));
    title.prepend(make("span", `mark mark-${at}`));
    const note = make("p", "note");
    const text = make("div", "text");
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", `Tokens of ${nameOf(panel)}`);
    box.append(title, note, text);
    place.append(box);
    const cells = buildCells(panel, row, text);
    for (const { node } of cells) {
      node.tabIndex = -1;
      node.setAttribute("role", "button");
    }
    return { ...panel, row, text, note, cells };
  });
  const open = canvases.map((canvas) => canvas.cells.find((cell) => cell.given === undefined));
  open.forEach((cell) => cell && (cell.node.tabIndex = 0));
}

function buildCells(panel, row, text) {
  const fixed = given(panel.run);
  const columns = data.runs[panel.run].columns;
  const coming = writings(row, columns, Infinity);
  return columnsOf(panel.run, row).map((column) => {
    const cell = { column, given: fixed.get(column), node: make("span", "token"), event: null };
    cell.coming = column < 0 || coming[column] < 0 ? null : row.token[coming[column]];
    cell.space = document.createTextNode("");
    cell.node.cell = cell;
    text.append(cell.space, cell.node);
    return cell;
  });
}

/** "<|endoftext|>" as "endoftext". */
function nameOfSpecial(piece) {
  return piece.match(/^<\|(.+)\|>$/)?.[1] ?? piece;
}

function say(cell, [space, seen]) {
  cell.space.data = space;
  cell.node.textContent = seen;
}

function drawCanvases() {
  for (const canvas of canvases) {
    const { run, row, cells } = canvas;
    const now = writings(row, data.runs[run].columns, state.step);
    for (const cell of cells) {
      const event = cell.column < 0 ? -1 : now[cell.column];
      drawCell(canvas, cell, event);
      cell.node.setAttribute("aria-label", spoken(cell, row, event));
    }
    const written = cells.filter((cell) => cell.kind === "written").length;
    const open = cells.filter((cell) => cell.kind === "open").length;
    const over = open === 0 || state.step >= data.runs[run].steps;
    canvas.note.textContent = `${written} of ${written + open} tokens written${over ? ending(row) : ""}`;
  }
}

function ending(row) {
  return { length: "", token: ", ended by a token", string: ", ended by a string" }[row.ended];
}

function drawCell(canvas, cell, event) {
  const { row, run } = canvas;
  const node = cell.node;
  const mask = data.runs[run].mask;
  if (cell.given !== undefined) cell.kind = "given";
  else cell.kind = event < 0 || row.token[event] === mask ? "open" : "written";
  const fresh = cell.kind === "written" && row.step[event] === state.step - 1;
  const dropped = cell.kind === "written" && row.text[cell.column] === "0";
  if (cell.event !== event || cell.event === null) {
    cell.event = event;
    const token = { given: cell.given, open: cell.coming, written: row.token[event] }[cell.kind];
    const nothing = token === null || token === mask;
    node.classList.toggle("special", data.special.includes(token));
    say(cell, nothing ? [" ", "···"] : cut(token, true));
  }
  node.classList.toggle("given", cell.kind === "given");
  node.classList.toggle("open", cell.kind === "open");
  node.classList.toggle("fresh", fresh);
  node.classList.toggle("dropped", dropped);
  tint(cell, row, event);
}

function tint(cell, row, event) {
  const level = cell.kind === "written" ? levelOf(row, event) : null;
  cell.node.classList.toggle("unknown", cell.kind === "written" && level === null);
  cell.node.style.setProperty("--level", (level ?? 0).toFixed(3));
}

/** How unsure a writing was, from 0 to 1, or null where that is not known. */
function levelOf(row, event) {
  if (state.colour === "entropy") {
    const details = row.details[event];
    return details ? Math.min(details[3] / MOST, 1) : null;
  }
  const chance = row.chance[event];
  return chance === null ? null : 1 - probability(chance);
}

function spoken(cell, row, event) {
  if (cell.kind === "given") return `given: ${cut(cell.given)[1]}`;
  if (cell.kind === "open") return "not written yet";
  const chance = row.chance[event];
  const odds = chance === null ? "" : `, probability ${shown(probability(chance))}`;
  return `${cut(row.token[event])[1]}${odds}, step ${row.step[event] + 1}`;
}
