/* src/tokens/unigram.py: how likely is a word that has many tokenizations? Bytes are a string of them.

     alpha(j) = sum over edges i -> j of alpha(i) p(w)        P(word) = alpha(n) = beta(0)
     beta(i)  = sum over edges i -> j of p(w) beta(j)         m = alpha(i) p(w) beta(j) / P(word)
     best(j)  = max over edges i -> j of best(i) p(w)
*/
"use strict";

globalThis.nextToken ??= {};

/* For each place of the word, the edges [start, token] that end there. */
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
  if (most === -Infinity) return most;
  return most + Math.log(terms.reduce((sum, term) => sum + Math.exp(term - most), 0));
};

/* Of each edge [start, end, token, probability]; of a word that nothing spells, all zero. */
nextToken.posteriors = (edges, logProbs) => {
  const [alpha, beta] = [nextToken.forward(edges, logProbs), nextToken.backward(edges, logProbs)];
  const total = Math.max(alpha.at(-1), -Number.MAX_VALUE);
  return edges.flatMap((ending, end) =>
    ending.map(([start, token]) => [start, end, token, Math.exp(alpha[start] + logProbs[token] + beta[end] - total)]),
  );
};

/* The tokens of the likeliest segmentation, and its log-probability; null and -Infinity if there is none. */
nextToken.bestPath = (edges, logProbs) => {
  const [best, arrived] = [[0], [null]];
  for (const ending of edges.slice(1)) {
    let [score, edge] = [-Infinity, null];
    for (const [start, token] of ending) {
      if (best[start] + logProbs[token] > score) [score, edge] = [best[start] + logProbs[token], [start, token]];
    }
    best.push(score);
    arrived.push(edge);
  }
  if (best.at(-1) === -Infinity) return [null, -Infinity];
  const path = [];
  for (let place = edges.length - 1; place; place = arrived[place][0]) path.unshift(arrived[place][1]);
  return [path, best.at(-1)];
};

/* Tokens [bytes, log-probability] as those of UnigramTokenizer: all 256 bytes first, the least likely at the floor. */
nextToken.unigramTokens = (pieces) => {
  const complete = new Map(Array.from({ length: 256 }, (_, byte) => [String.fromCharCode(byte), Math.log(1e-5 / 256)]));
  for (const [piece, logProb] of pieces) complete.set(piece, logProb);
  const [names, logProbs] = [[...complete.keys()], [...complete.values()]];
  return { names, logProbs, ids: new Map(names.map((name, id) => [name, id])) };
};
