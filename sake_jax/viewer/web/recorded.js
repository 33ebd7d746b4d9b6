"use strict";
// What was recorded, and what of it is on the screen.

const data = JSON.parse(document.getElementById("payload").textContent);
const lastStep = Math.max(...data.runs.map((run) => run.steps));
const state = {
  step: 0,
  prompt: 0,
  sample: data.opens ?? 0,
  shown: data.runs.length > 1 ? "both" : "0",
  pair: null, // {run, samples: [i, j]} of a cell of a similarity map
  colour: "confidence",
};

const NEWLINE = "↵\n"; // how a newline is shown

/** What is on the screen: one or two of {run, sample}. */
function panels() {
  if (state.pair) return state.pair.samples.map((sample) => ({ run: state.pair.run, sample }));
  const runs = state.shown === "both" ? data.runs.map((_, run) => run) : [Number(state.shown)];
  return runs.map((run) => ({ run, sample: state.sample }));
}
