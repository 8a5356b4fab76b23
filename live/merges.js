  const field = box.querySelector("input"), row = box.querySelector(".row");
  const says = box.querySelector("p");
  const buttons = [...box.querySelectorAll("[data-go]")];
  const split = new RegExp(data.pattern, "gu");
  const bytes = Array.from({length: 256}, (_, i) => [i]), rank = new Map();
  data.merges.forEach(([a, b], i) => {
    bytes.push([...bytes[a], ...bytes[b]]);
    rank.set(a + "," + b, i);
  });
  const shown = id => {
    try {
      const whole = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
      return whole.decode(Uint8Array.from(bytes[id])).replaceAll(" ", "␣");
    } catch {
      return bytes[id].map(b => b.toString(16).toUpperCase()).join(" ");
    }
  };
  const best = words => Math.min(...words.flatMap(word =>
    word.slice(1).map((b, i) => rank.get(word[i] + "," + b) ?? Infinity)));
  const upcoming = words => {
    const ranks = new Set(words.flatMap(word => word.slice(1)
      .map((b, i) => rank.get(word[i] + "," + b)).filter(r => r >= 0)));
    const lowest = Math.min(...ranks);
    const pair = data.merges[lowest].map(shown).join(" + ");
    return `Next: ${pair}, of rank ${lowest}` + (ranks.size > 1 ?
      `, the lowest of ${ranks.size} that could be made.` : ".");
  };
  const merge = (word, [a, b], made) => word.reduce((done, id) => {
    if (id === b && done.at(-1) === a) done[done.length - 1] = made;
    else done.push(id);
    return done;
  }, []);
  let steps, at;
  const start = () => {
    const text = field.value.toWellFormed?.() ?? field.value;
    let words = (text.match(split) ?? [])
      .map(word => [...new TextEncoder().encode(word)]);
    steps = [{words, made: null}];
    for (let r = best(words); r < Infinity; r = best(words)) {
      words = words.map(word => merge(word, data.merges[r], 256 + r));
      steps.push({words, made: 256 + r});
    }
    at = 0;
    draw();
  };
  const draw = () => {
    const {words, made} = steps[at];
    row.replaceChildren(...words.map(word => {
      const group = document.createElement("span");
      group.className = "word";
      group.append(...word.map(id => {
        const token = document.createElement("span");
        token.className = id === made ? "token new" : "token";
        token.dataset.id = id;
        const name = document.createElement("b");
        const number = document.createElement("small");
        name.textContent = shown(id);
        number.textContent = id;
        token.append(name, number);
        return token;
      }));
      return group;
    }));
    const count = words.flat().length, last = steps.length - 1;
    const letters = [...field.value].length;
    const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
    const pair = made && data.merges[made - 256].map(shown).join(" + ");
    says.textContent = `Step ${at} of ${last}: ` + (made ?
      `merge ${made - 256} makes ${pair} one token; ` : "the bytes; ") +
      `${plural(count, "token")} for ${plural(letters, "character")}. ` +
      (at === last ? "No pair is left that has a merge." : upcoming(words));
    for (const button of buttons) {
      const end = ["first", "back"].includes(button.dataset.go) ? 0 : last;
      button.setAttribute("aria-disabled", at === end);
    }
  };
  const go = where => {
    const last = steps.length - 1;
    at = {first: 0, back: Math.max(0, at - 1), next: Math.min(last, at + 1),
      last}[where];
    draw();
  };
  for (const button of buttons)
    button.addEventListener("click", () => go(button.dataset.go));
  for (const text of data.examples) {
    const example = document.createElement("button");
    Object.assign(example, {type: "button", textContent: text});
    example.addEventListener("click", () => { field.value = text; start(); });
    box.querySelector("[aria-label=Examples]").append(example);
  }
  box.querySelector(".steps").addEventListener("keydown", event => {
    const keys = {ArrowLeft: "back", ArrowRight: "next",
      Home: "first", End: "last"};
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    go(keys[event.key]);
  });
  field.addEventListener("input", start);
  start();
  at = Math.floor(steps.length / 2);  // there is something to see
  draw();
