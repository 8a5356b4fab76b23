/* src/gpt/gpt2.py with the cache of src/gpt/cache.py, for one token at a time; the weights by the names that
   GPT-2's files have.

     x = wte[id] + wpe[position]
     x = x + attention(norm(x)),  x = x + network(norm(x))       in each block
     logits = norm(x) wte'
*/
"use strict";

globalThis.nextToken ??= {};

/* A safetensors file in base64: the length of its head, the head as JSON, the numbers. */
nextToken.readWeights = (base64) => {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length).map((_, at) => text.charCodeAt(at));
  const start = 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
  delete head.__metadata__;
  return Object.fromEntries(
    Object.entries(head).map(([name, { dtype, shape, data_offsets: [from, to] }]) => {
      if (dtype !== "F32") throw new TypeError(`expected F32, got ${dtype} for ${name}`);
      return [name.replace("transformer.", ""), { shape, data: new Float32Array(bytes.slice(start + from, start + to).buffer) }];
    }),
  );
};

/* What each id says: the bytes in the order of the file, then the merges, then the special tokens. */
nextToken.spelled = (tokenizer) => {
  const parts = [];
  tokenizer.bytes.forEach((id, byte) => (parts[id] = [byte]));
  const numbered = [...tokenizer.bytes];
  for (const [left, right, id] of tokenizer.merges) {
    numbered.push(id);
    parts[id] = [...parts[numbered[left]], ...parts[numbered[right]]];
  }
  for (const [name, id] of Object.entries(tokenizer.specials)) parts[id] = [...new TextEncoder().encode(name)];
  return parts;
};

nextToken.erf = (x) => {
  // Abramowitz and Stegun 1964, 7.1.26: within 1.5e-7
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const sum = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  return Math.sign(x) * (1 - sum * Math.exp(-x * x));
};

nextToken.GPT = class {
  constructor(weights, config) {
    Object.assign(this, { weights, config });
    this.channels = config.n_embd;
    this.width = config.n_embd / config.n_head; // of a head
    this.forget();
  }

  forget() {
    this.cache = Array.from({ length: this.config.n_layer }, () => []); // [key, value] of each token
  }

  norm(x, name) {
    const { [`${name}.weight`]: gain, [`${name}.bias`]: bias } = this.weights;
    const mean = x.reduce((a, b) => a + b, 0) / x.length;
    const variance = x.reduce((sum, each) => sum + (each - mean) ** 2, 0) / x.length;
    const size = Math.sqrt(variance + this.config.layer_norm_epsilon);
    return x.map((each, c) => ((each - mean) / size) * gain.data[c] + bias.data[c]);
  }

  /* x W + b */
  linear(x, name) {
    const { data, shape: [inputs, outputs] } = this.weights[`${name}.weight`];
    const sums = Float64Array.from(this.weights[`${name}.bias`].data);
    for (let i = 0; i < inputs; i += 1) {
      const [each, row] = [x[i], data.subarray(i * outputs, (i + 1) * outputs)];
      for (let o = 0; o < outputs; o += 1) sums[o] += each * row[o];
    }
    return sums;
  }

  attention(x, layer) {
    const made = this.linear(x, `h.${layer}.attn.c_attn`);
    const [query, key, value] = [0, 1, 2].map((n) => made.subarray(n * this.channels, (n + 1) * this.channels));
    const past = this.cache[layer];
    past.push([key, value]);
    const output = new Float64Array(this.channels);
    for (let first = 0; first < this.channels; first += this.width) {
      const scores = past.map(([kept]) => {
        let sum = 0;
        for (let c = first; c < first + this.width; c += 1) sum += query[c] * kept[c];
        return sum / Math.sqrt(this.width);
      });
      nextToken.softmax(scores).forEach((weight, s) => {
        for (let c = first; c < first + this.width; c += 1) output[c] += weight * past[s][1][c];
      });
    }
    return this.linear(output, `h.${layer}.attn.c_proj`);
  }

  network(x, layer) {
    const hidden = this.linear(x, `h.${layer}.mlp.c_fc`);
    const share = { // of h that goes on
      gelu: (h) => nextToken.erf(h / Math.SQRT2),
      gelu_new: (h) => Math.tanh(Math.sqrt(2 / Math.PI) * (h + 0.044715 * h ** 3)),
      relu: Math.sign,
      silu: (h) => Math.tanh(h / 2),
    }[this.config.activation_function];
    return this.linear(hidden.map((h) => 0.5 * h * (1 + share(h))), `h.${layer}.mlp.c_proj`);
  }

  /* The logits after one more token. */
  read(id) {
    return this.unembed(this.state(id));
  }

  /* What they are made from: the stream at its end, after the last norm. */
  state(id) {
    const [position, C] = [this.cache[0].length, this.channels];
    if (position >= this.config.n_positions) throw new RangeError(`expected at most ${this.config.n_positions} tokens`);
    const [wte, wpe] = ["wte.weight", "wpe.weight"].map((name) => this.weights[name].data);
    let x = Float64Array.from({ length: C }, (_, c) => wte[id * C + c] + wpe[position * C + c]);
    for (let layer = 0; layer < this.config.n_layer; layer += 1) {
      const heard = this.attention(this.norm(x, `h.${layer}.ln_1`), layer);
      x = x.map((each, c) => each + heard[c]);
      const made = this.network(this.norm(x, `h.${layer}.ln_2`), layer);
      x = x.map((each, c) => each + made[c]);
    }
    return this.norm(x, "ln_f");
  }

  unembed(x) {
    const C = this.channels;
    const rows = (this.weights["lm_head.weight"] ?? this.weights["wte.weight"]).data;
    return Array.from({ length: this.config.vocab_size }, (_, w) => {
      let sum = 0;
      for (let c = 0; c < C; c += 1) sum += x[c] * rows[w * C + c];
      return sum;
    });
  }
};
