/* src/texts/markov.py, small_english: after which word comes which, in twentieths. */
"use strict";

globalThis.nextToken ??= {};

nextToken.smallEnglish = {
  vocabulary: ["<end>", "the", "a", "tabby", "cat", "dog", "river", "bank", "walks", "sleeps", "sees", "by"],
  twentieths: [
    [0, 14, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 3, 5, 5, 4, 3, 0, 0, 0, 0],
    [0, 0, 0, 4, 6, 7, 2, 1, 0, 0, 0, 0],
    [0, 0, 0, 0, 18, 0, 0, 0, 0, 2, 0, 0],
    [5, 0, 0, 0, 0, 0, 0, 0, 8, 7, 0, 0],
    [5, 0, 0, 0, 0, 0, 0, 0, 7, 4, 4, 0],
    [8, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0],
    [16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4],
    [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12],
    [12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8],
    [0, 12, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 15, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
  ],
};
