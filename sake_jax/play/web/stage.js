// The texts on the screen, in two columns: with guidance, and without.

const texts = document.getElementById("texts");
const slider = document.getElementById("slider");
const REPEATED = 0.6; // of the colour in full
let heads = [];

function buildStage() {
  // Cards keep their height until the run is over, so that nothing jumps while they fill.
  const heights = canvases.map(({ box }) => box.offsetHeight);
  texts.replaceChildren();
  texts.classList.toggle("alone", data.runs.length < 2);
  heads = data.runs.map((run, at) => {
    const head = make("div", "head-of-column");
    const title = make("h2", "", run.name);
    title.prepend(make("span", `mark mark-${at}`));
    head.append(title, make("p", "note"));
    texts.append(head);
    return head;
  });
  canvases = panels().map((panel, at) => {
    const row = rowOf(panel.run, panel.sample);
    const box = make("article", "panel");
    const title = make("h3", "", `${data.runs[panel.run].name}, text ${panel.sample + 1}`);
    title.prepend(make("span", `mark mark-${panel.run}`));
    const text = make("p", "text");
    box.append(title, text);
    if (heights[at]) box.style.minHeight = `${heights[at]}px`;
    texts.append(box);
    return { ...panel, row, box, text, cells: buildCells(panel, row, text) };
  });
  slider.max = Math.max(...data.runs.map((run) => run.steps));
}

function drawStage() {
  const steps = Number(slider.max);
  const newest = Math.max(...data.runs.map((run) => run.taken));
  texts.classList.toggle("finished", running === null && state.step === newest);
  slider.value = state.step;
  slider.setAttribute("aria-valuetext", `step ${state.step} of ${steps}`);
  document.getElementById("count").textContent = `${state.step} / ${steps}`;
  const sums = data.runs.map(() => ({ pairs: 0, repeated: 0 }));
  for (const canvas of canvases) {
    const found = drawText(canvas);
    sums[canvas.run].pairs += found.pairs;
    sums[canvas.run].repeated += found.repeated;
  }
  heads.forEach((head, at) => {
    const { pairs, repeated } = sums[at];
    const part = pairs ? `${Math.round((100 * repeated) / pairs)} %, ` : "";
    head.lastChild.textContent = `repeated pairs: ${part}${repeated} of ${pairs}`;
  });
}

function drawText(canvas) {
  const { run, row, cells } = canvas;
  const now = writings(row, data.runs[run].columns, state.step);
  const found = repeats(run, row);
  const over = row.over !== null && state.step >= row.over;
  for (const cell of cells) {
    drawCell(canvas, cell, cell.column < 0 ? -1 : now[cell.column]);
    cell.node.hidden = over && cell.kind === "open"; // its text ended before
    if (mark.value === "confidence") continue;
    const level = mark.value === "repeats" && found.marked.has(cell.column) ? REPEATED : 0;
    cell.node.style.setProperty("--level", cell.kind === "written" ? level : 0);
  }
  return found;
}
