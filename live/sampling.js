/* src/gpt/sampling.py: filters change logits, and what is left is drawn from. */
"use strict";

globalThis.nextToken ??= {};

/* 0: the likeliest only */
nextToken.temperature = (logits, t) => {
  if (t > 0) return logits.map((logit) => logit / t);
  const best = logits.indexOf(Math.max(...logits));
  return logits.map((logit, w) => (w === best ? logit : -Infinity));
};

nextToken.topK = (logits, k) => {
  const order = [...logits.keys()].sort((a, b) => logits[b] - logits[a]).slice(0, k);
  const kept = new Set(order);
  return logits.map((logit, w) => (kept.has(w) ? logit : -Infinity));
};

/* The fewest, likeliest first, that together have p or more. */
nextToken.nucleus = (logits, p) => {
  if (p === 1) return logits; // a sum of rounded shares may reach 1 before the last
  const probs = nextToken.softmax(logits);
  const order = [...probs.keys()].sort((a, b) => probs[b] - probs[a]);
  const kept = new Set();
  let before = 0;
  for (const w of order) {
    if (before >= p) break;
    kept.add(w);
    before += probs[w];
  }
  return logits.map((logit, w) => (kept.has(w) ? logit : -Infinity));
};

/* Those with p or more times the probability of the likeliest. */
nextToken.minP = (logits, p) => {
  const least = Math.max(...logits) + Math.log(p);
  return logits.map((logit) => (logit >= least ? logit : -Infinity));
};

/* random: a number from 0 to 1 */
nextToken.draw = (probs, random = Math.random()) => {
  let left = random;
  const found = probs.findIndex((p) => (left -= p) < 0);
  return found >= 0 ? found : probs.findLastIndex((p) => p > 0);
};
