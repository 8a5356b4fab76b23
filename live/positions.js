/* src/attention/positions.py: where does a token stand, and how far apart are two?

     sinusoidal    P[t, 2i] = sin(t w_i),  P[t, 2i + 1] = cos(t w_i),  w_i = base^(-2i / C)
*/
"use strict";

globalThis.nextToken ??= {};

nextToken.frequencies = (channels, base = 10_000) =>
  Array.from({ length: channels / 2 }, (_, i) => base ** ((-2 * i) / channels));

/* P[t], (C) */
nextToken.sinusoidalPosition = (t, channels, base) =>
  nextToken.frequencies(channels, base).flatMap((w) => [Math.sin(t * w), Math.cos(t * w)]);
