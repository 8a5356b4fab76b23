/* src/tokens/unigram.py: how likely is a word that has many tokenizations? A word is a string of bytes.

     alpha(j) = sum over edges i -> j of alpha(i) p(w)        P(word) = alpha(n) = beta(0)
     beta(i)  = sum over edges i -> j of p(w) beta(j)         m = alpha(i) p(w) beta(j) / P(word)
     best(j)  = max over edges i -> j of best(i) p(w)
*/
"use strict";

globalThis.nextToken ??= {};

/* For each place, the edges [start, token] that end there. */
nextToken.lattice = (word, ids) =>
  Array.from({ length: word.length + 1 }, (_, end) =>
    Array.from({ length: end }, (_, start) => [start, ids.get(word.slice(start, end))]).filter(([, token]) => token !== undefined),
  );

nextToken.forward = (edges, logProbs) => {
  const alpha = [0];
  for (const ending of edges.slice(1)) alpha.push(nextToken.logSum(ending.map(([start, token]) => alpha[start] + logProbs[token])));
  return alpha;
};

nextToken.backward = (edges, logProbs) => {
  const terms = edges.map(() => []); // of the edges that begin at each place
  const beta = edges.map(() => 0);
  for (let end = edges.length - 1; end >= 0; end -= 1) {
    if (end < edges.length - 1) beta[end] = nextToken.logSum(terms[end]);
    for (const [start, token] of edges[end]) terms[start].push(logProbs[token] + beta[end]);
  }
  return beta;
};

nextToken.logSum = (terms) => {
  const most = Math.max(...terms); // -Infinity of none
  return most === -Infinity ? most : most + Math.log(terms.reduce((sum, term) => sum + Math.exp(term - most), 0));
};

/* Of each edge [start, end, token, probability]; all zero for a word that no cut spells, where src has an error. */
nextToken.posteriors = (edges, logProbs) => {
  const [alpha, beta] = [nextToken.forward(edges, logProbs), nextToken.backward(edges, logProbs)];
  const total = Math.max(alpha.at(-1), -Number.MAX_VALUE);
  return edges.flatMap((ending, end) =>
    ending.map(([start, token]) => [start, end, token, Math.exp(alpha[start] + logProbs[token] + beta[end] - total)]),
  );
};

/* The likeliest tokens, and their log-probability; [] and -Infinity for a word that no cut spells. */
nextToken.bestPath = (edges, logProbs) => {
  const [best, arrived] = [[0], []];
  edges.slice(1).forEach((ending, before) => {
    best.push(-Infinity);
    for (const [start, token] of ending) {
      const score = best[start] + logProbs[token];
      if (score > best[before + 1]) [best[before + 1], arrived[before + 1]] = [score, [start, token]];
    }
  });
  const path = [];
  if (best.at(-1) > -Infinity) for (let at = edges.length - 1; at; at = arrived[at][0]) path.unshift(arrived[at][1]);
  return [path, best.at(-1)];
};

/* UnigramTokenizer of [bytes, log-probability]: a byte that is missing gets the least. */
nextToken.unigramTokenizer = (pieces) => {
  const bytes = Array.from({ length: 256 }, (_, byte) => [String.fromCharCode(byte), Math.log(1e-5 / 256)]);
  const complete = new Map([...bytes, ...pieces]);
  const names = [...complete.keys()];
  return { pieces: names, logProbs: [...complete.values()], ids: new Map(names.map((name, id) => [name, id])) };
};
