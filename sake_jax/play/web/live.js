"use strict";
// The run on the screen, which grows while it is written: the tree of a recorded run's page.

let data = { prompts: [{ tokens: [], first: 0 }], samples: 0, runs: [], pieces: [], special: [], words: true };
const NEWLINE = "\n"; // how a newline is shown
const state = { step: 0, prompt: 0, colour: "confidence" };

/** A tree without any changes yet, of a "begin" event. */
function beginning(event) {
  const blank = () => ({
    step: [], column: [], token: [], chance: [], details: {}, outside: [0, 0], text: [], over: null,
  });
  const rows = () => Array.from({ length: event.samples }, blank);
  const runs = event.runs.map((run) => ({ ...run, rows: rows(), taken: 0 }));
  return { ...event, runs, words: true };
}

/** Takes a "step" event into a tree. */
function grow(tree, event) {
  tree.pieces.push(...event.pieces);
  tree.special.push(...event.special);
  event.runs.forEach((changes, at) => {
    const run = tree.runs[at];
    run.taken = event.step + 1;
    changes.row.forEach((sample, change) => {
      const row = run.rows[sample];
      row.step.push(event.step);
      for (const name of ["column", "token", "chance"]) row[name].push(changes[name][change]);
    });
    changes.over.forEach((step, sample) => {
      if (step !== null && run.rows[sample].over === null) close(run, run.rows[sample], step + 1);
    });
  });
}

/** A row that is finished: what stands after its end token is no text. */
function close(run, row, step) {
  row.over = step;
  const now = writings(row, run.columns, Infinity);
  const end = now.findIndex((event) => event >= 0 && row.token[event] === run.end);
  if (end >= 0) for (let column = end; column < run.columns; column++) row.text[column] = "0";
}

/** Sample by sample, with guidance and without. */
function panels() {
  const samples = Array.from({ length: data.samples }, (_, sample) => sample);
  return samples.flatMap((sample) => data.runs.map((_, run) => ({ run, sample })));
}

/** The events of an answer, one after the other, as they come. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part.replace(/^data: /, ""));
  }
}
