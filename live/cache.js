/* src/gpt/sampling.py, generate, with the cache of src/gpt/cache.py: what does each new token cost? Beyond the limit
   the window moves by one, or by half of it, or (rolling) only the oldest key leaves: book/gpt/cache.md. */
"use strict";

globalThis.nextToken ??= {};

/* The calls of a model until the text has `length` tokens: the first reads the prompt (prefill), each of the others one
   token more (decoding). A call sees `read` tokens, begin to end. Without a cache their rows are all computed, with it
   `computed` of them; `kept` tokens are in the cache then. Scores are those of one head. */
nextToken.calls = (prompt, length, limit, beyond) => {
  const found = [];
  let [begin, known] = [0, 0]; // where the window begins; up to where keys and values are kept
  for (let end = prompt; end <= length; end += 1) {
    const full = end - begin > limit;
    if (full) begin = end - (beyond === "half" ? limit / 2 : limit);
    if (full && beyond !== "rolling") known = begin; // each token has moved: no kept key is right
    const [read, computed] = [end - begin, end - known];
    const kept = full && beyond === "one" ? 0 : read;
    found.push({ begin, end, full, read, computed, kept, scores: read * read, cachedScores: computed * read });
    known = end;
  }
  return found;
};

/* GPTConfig.cached: numbers that a cache keeps, a key and a value of C channels for each token and layer. */
nextToken.cached = (config, length) => 2 * config.n_layer * length * config.n_embd;

/* The logits of one call, from nothing. */
nextToken.withoutCache = (model, ids, { begin, end }) => {
  model.forget();
  return model.unembed(ids.slice(begin, end).map((id) => model.state(id)).at(-1));
};

/* The logits of the last call, with what the calls before it have left in the cache. */
nextToken.withCache = (model, ids, calls, limit) => {
  let state;
  for (const { read, computed, end } of calls.slice(calls.findLastIndex((call) => call.computed === call.read))) {
    if (computed === read) model.forget();
    for (const id of ids.slice(end - computed, end)) {
      for (const past of model.cache) if (past.length === limit) past.shift(); // rolling
      state = model.state(id);
    }
  }
  return model.unembed(state);
};
