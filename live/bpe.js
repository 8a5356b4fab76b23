/* src/tokens/bpe.py: how does a text become few tokens? A token is one character, whose code is its number: a word is a
   string, and an older merge a smaller character. The merges come as one string, two characters each (_ext/live.py). */
"use strict";

globalThis.nextToken ??= {};

/* \p{White_Space} is what \s is in Python's `regex`, and not quite here. */
nextToken.GPT2_PATTERN = new RegExp(
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s])|\s+`.replaceAll("\\s", "\\p{White_Space}"),
  "gu",
);
nextToken.splitWords = (text) => text.match(nextToken.GPT2_PATTERN) ?? [];

nextToken.symbols = (word) => [...new TextEncoder().encode(word)].map((byte) => String.fromCharCode(byte)).join("");

nextToken.BytePairTokenizer = class {
  constructor(merges) {
    [this.symbolOfPair, this.pairOfSymbol] = [new Map(), new Map()];
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    for (let rank = 0; 2 * rank < merges.length; rank += 1) {
      const [pair, symbol] = [merges.slice(2 * rank, 2 * rank + 2), String.fromCharCode(256 + rank)];
      this.symbolOfPair.set(pair, symbol);
      this.pairOfSymbol.set(symbol, pair);
    }
  }

  encode(text) {
    const words = nextToken.splitWords(text).map((word) => this.merged(nextToken.symbols(word)));
    return [...words.join("")].map((token) => token.charCodeAt());
  }

  merged(word) {
    for (let first; (first = this.first([word])); ) word = this.merge(word, first);
    return word;
  }

  /* Of the merges that words have pairs for, the one that was learned first. */
  first(words) {
    let found;
    for (const word of words) {
      for (let at = 0; at + 1 < word.length; at += 1) {
        const made = this.symbolOfPair.get(word.slice(at, at + 2));
        if (made && (!found || made < found)) found = made;
      }
    }
    return found;
  }

  merge(word, symbol) {
    return word.replaceAll(this.pairOfSymbol.get(symbol), symbol);
  }

  parts(token) {
    return [...(this.pairOfSymbol.get(token) ?? "")]; // none: a byte
  }

  /* A token as one reads it; as its bytes, if it is no whole character. */
  spelled(token) {
    const bytes = (part) => (part.charCodeAt() < 256 ? [part.charCodeAt()] : this.parts(part).flatMap(bytes));
    const text = this.decoder.decode(Uint8Array.from(bytes(token)));
    return text.includes("\ufffd") ? bytes(token).map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ") : text.replaceAll(" ", "␣");
  }
};
