// Rows of tokens at any step of a run.

function rowOf(run, sample) {
  return data.runs[run].rows[state.prompt * data.samples + sample];
}

function nameOf({ run, sample }) {
  const which = data.samples > 1 ? `sample ${sample + 1}` : "";
  const name = data.runs.length > 1 ? data.runs[run].name : "";
  return [name, which].filter(Boolean).join(", ") || "the text";
}

/** What tells the rows on the screen apart. */
function shortName(panel) {
  if (state.pair) return `sample ${panel.sample + 1}`;
  return data.runs.length > 1 ? data.runs[panel.run].name : nameOf(panel);
}

/** For each column the number of the event that wrote what stands there, -1 for none. */
function writings(row, columns, step) {
  const found = new Int32Array(columns).fill(-1);
  for (let at = 0; at < row.step.length && row.step[at] < step; at++) found[row.column[at]] = at;
  return found;
}

/** Given tokens by column: the prompt, or what stands around the gaps. */
function given(run) {
  const { tokens, first } = data.prompts[state.prompt];
  const mask = data.runs[run].mask;
  const found = new Map();
  tokens.forEach((token, at) => {
    if (token !== mask) found.set(first + at, token);
  });
  return found;
}

/** All columns of a row that are shown, from the left. */
function columnsOf(run, row) {
  const { first } = data.prompts[state.prompt];
  const [before, after] = row.outside;
  const from = Math.min(first, before);
  const until = data.runs[run].columns - after;
  const count = until - from;
  return Array.from({ length: count }, (_, at) => from + at).filter((c) => c < 0 || c >= before);
}

function probability(hundredths) {
  return Math.exp(-hundredths / 100);
}

/** [[token, probability], ...] of a flat list. */
function candidates(flat) {
  const found = [];
  for (let at = 0; at < flat.length; at += 2) found.push([flat[at], probability(flat[at + 1])]);
  return found;
}

function shown(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0 || Number.isInteger(value)) return String(value);
  return size >= 100 ? value.toFixed(0) : size >= 0.01 ? value.toFixed(2) : value.toExponential(0);
}

function make(tag, className = "", text = "") {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  return node;
}
