/* src/likelihood/smoothing.py, on the counts of src/likelihood/ngrams.py: what do counts keep, and who gets the rest?

     p(w | c) = mass(c w) + left(c) p(w | c')          c' is c without its oldest word; uniform below

     interpolated   m N(c w) / N(c .)                  1 - m
     absolute       max(N(c w) - D, 0) / N(c .)        D N1+(c .) / N(c .)
     kneser-ney     as absolute, with continuation counts at every order but the highest
*/
"use strict";

globalThis.nextToken ??= {};

/* One entry for each length, the shortest first: the context, its words joined, -> the word -> N(c w). The first word
   of the stream is context only. */
nextToken.countNgrams = (words, order) =>
  Array.from({ length: order }, (_, k) => {
    const grams = new Map();
    for (let t = Math.max(1, k); t < words.length; t += 1) {
      const context = words.slice(t - k, t).join(" ");
      const counts = grams.get(context) ?? grams.set(context, new Map()).get(context);
      counts.set(words[t], (counts.get(words[t]) ?? 0) + 1);
    }
    return grams;
  });

/* m N(c w) / N(c .), with 1 - m left */
nextToken.relativeFrequencies = (counts, weight) => nextToken.massTable(counts, (count) => weight * count);

/* max(N(c w) - D, 0) / N(c .), with D N1+(c .) / N(c .) left */
nextToken.discounted = (counts, discount) => nextToken.massTable(counts, (count) => Math.max(count - discount, 0));

/* After one context: the mass that each word keeps, and what is left; all of it where the context was never seen. */
nextToken.massTable = (counts, kept) => {
  const total = [...counts.values()].reduce((a, b) => a + b, 0);
  const mass = new Map([...counts].map(([word, count]) => [word, kept(count) / total]));
  const taken = [...counts.values()].reduce((sum, count) => sum + count - kept(count), 0);
  return { counts, total, mass, left: total ? taken / total : 1 };
};

/* N1+(. c w): after how many different words each n-gram was seen; from those one word longer. */
nextToken.continuationCounts = (longer) => {
  const grams = new Map();
  for (const [context, counts] of longer) {
    const shorter = context.split(" ").slice(1).join(" ");
    const found = grams.get(shorter) ?? grams.set(shorter, new Map()).get(shorter);
    for (const word of counts.keys()) found.set(word, (found.get(word) ?? 0) + 1);
  }
  return grams;
};

/* After a context: what each length says, the longest first, and the probability of each word of the vocabulary. */
nextToken.backOff = (levels, vocabulary, estimator, parameter, context) => {
  const tableOf = estimator === "interpolated" ? nextToken.relativeFrequencies : nextToken.discounted;
  let probs = vocabulary.map(() => 1 / vocabulary.length);
  const steps = levels.map((grams, k) => {
    const continued = estimator === "kneser-ney" && k + 1 < levels.length;
    const known = context.length < k ? null : context.slice(context.length - k).join(" ");
    const counts = (continued ? nextToken.continuationCounts(levels[k + 1]) : grams).get(known) ?? new Map();
    const step = { known, ...tableOf(counts, parameter) };
    probs = probs.map((below, w) => (step.mass.get(vocabulary[w]) ?? 0) + step.left * below);
    return step;
  });
  return { steps: steps.reverse(), probs };
};
