/* src/likelihood/maximum_likelihood.py: how probable is what we saw, and which way is down?

     log L(theta)     = sum of n_w log p_w          (theta for one word, the rest in equal parts)
     d loss / d z     = softmax(z) - onehot(y)      for one example
*/
"use strict";

globalThis.nextToken ??= {};

/* log L of `seen` times this word and `other` times one of `others` words, each of (1 - theta) / others */
nextToken.logLikelihood = (theta, seen, other, others = 2) => {
  const part = (count, p) => (count ? count * Math.log(p) : 0); // 0^0 is 1
  return part(seen, theta) + part(other, (1 - theta) / others);
};

nextToken.gradientOfRow = (logits, target) => nextToken.softmax(logits).map((p, w) => p - (w === target ? 1 : 0));
