/* src/attention/attention.py: how does a token take from others what fits its query?

     scores  = q K' scale                 minus infinity where a key is not allowed
     weights = softmax(scores)
     output  = weights V
*/
"use strict";

globalThis.nextToken ??= {};

nextToken.dot = (a, b) => a.reduce((sum, each, i) => sum + each * b[i], 0);

nextToken.softmax = (scores) => {
  const most = Math.max(...scores);
  const shares = scores.map((score) => Math.exp(score - most)); // exp(-Infinity) is 0
  const sum = shares.reduce((a, b) => a + b, 0);
  return shares.map((share) => share / sum);
};

/* query (d), keys (n, d), values (n, e), allowed (n) -> scores (n), weights (n), output (e) */
nextToken.attention = (query, keys, values, allowed, scale = 1 / Math.sqrt(query.length)) => {
  const scores = keys.map((key, j) => (allowed[j] ? nextToken.dot(query, key) * scale : -Infinity));
  const weights = nextToken.softmax(scores);
  const output = values[0].map((_, c) => nextToken.dot(weights, values.map((value) => value[c])));
  return { scores, weights, output };
};
