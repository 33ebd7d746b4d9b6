// Pairs of neighbouring tokens that stood in a text before.

/** Tokens by column as they stand at this step; undefined where nothing is written. */
function standing(run, row) {
  const { mask, columns } = data.runs[run];
  const found = given(run);
  writings(row, columns, state.step).forEach((event, column) => {
    const written = event >= 0 && row.token[event] !== mask && row.text[column] !== "0";
    if (written) found.set(column, row.token[event]);
  });
  return found;
}

/** {pairs, repeated, marked: columns of the repeated ones} of what is written; the beginning is
 * compared with, but not counted. */
function repeats(run, row) {
  const tokens = standing(run, row);
  const seen = new Set();
  const found = { pairs: 0, repeated: 0, marked: new Set() };
  const { first } = data.prompts[state.prompt];
  for (let column = first + 1; column < data.runs[run].columns; column++) {
    const [left, right] = [tokens.get(column - 1), tokens.get(column)];
    if (left === undefined || right === undefined) continue;
    const pair = left * data.pieces.length + right;
    if (column >= 0) found.pairs++;
    if (column >= 0 && seen.has(pair)) {
      found.repeated++;
      found.marked.add(column - 1).add(column);
    }
    seen.add(pair);
  }
  return found;
}
