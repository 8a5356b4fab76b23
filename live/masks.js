/* src/attention/masks.py: which positions may a position look at? And what reaches it after L layers? */
"use strict";

globalThis.nextToken ??= {};

nextToken.maskOf = (length, rule) =>
  Array.from({ length }, (_, i) => Array.from({ length }, (_, j) => Boolean(rule(i, j))));
nextToken.causalMask = (length) => nextToken.maskOf(length, (i, j) => j <= i);
nextToken.bandedMask = (length, width) => nextToken.maskOf(length, (i, j) => Math.abs(i - j) < width);

/* Where (M + I)^L is above 0: paths of L permitted steps, of which the sum around a block is one. */
nextToken.reach = (mask, layers) => {
  const own = nextToken.maskOf(mask.length, (i, j) => i === j);
  let found = own;
  for (let layer = 0; layer < layers; layer += 1) {
    const before = found;
    found = nextToken.maskOf(mask.length, (i, j) => before.some((row, k) => (mask[i][k] || i === k) && row[j]));
  }
  return found;
};
