const pick = box.querySelector("select");
const rows = box.querySelector(".rows");
const says = box.querySelector("[aria-live]");
const drawn = box.querySelector(".drawn");
const text = box.querySelector(".before");
const draw = box.querySelector(".draw");
const settings = {}, total = data.names.length;
const add = (list, x) => list + x;
const softmax = z => {
  const top = Math.max(...z), e = z.map(x => Math.exp(x - top));
  const sum = e.reduce(add);
  return e.map(x => x / sum);
};
const order = z => z.map((_, i) => i).sort((a, b) => z[b] - z[a]);
const only = (z, ids) => {
  const kept = new Set(ids);
  return z.map((x, i) => kept.has(i) ? x : -Infinity);
};
const filters = {
  "temperature": (z, t) => t === null ? z.map(() => 0) :
    t === 0 ? only(z, [z.indexOf(Math.max(...z))]) : z.map(x => x / t),
  "top-k": (z, k) => only(z, order(z).slice(0, k)),
  "nucleus": (z, p) => {
    const probs = softmax(z);
    let sum = 0;  // of those before
    return p === 1 ? z : only(z, order(z).filter(i => {
      const needed = sum < p;
      sum += probs[i];
      return needed;
    }));
  },
  "min-p": (z, p) => {
    const least = Math.max(...z) + Math.log(p);
    return z.map(x => x < least ? -Infinity : x);
  },
};
const bits = p => p.map(x => x && -x * Math.log2(x)).reduce(add);
const percent = x => x >= .0995 ? (100 * x).toFixed(0) + "%" :
  x === 0 ? "0" : x < .0001 ? "<.01%" : (100 * x).toFixed(2) + "%";
const number = x => x === null ? "∞" : x.toLocaleString("en");
const bar = (kind, share) => {
  const bar = document.createElement("i");
  bar.className = kind;
  bar.style.width = 100 * share + "%";
  return bar;
};
const row = (kind, name, now, was, most) => {
  const made = document.createElement("div");
  const track = document.createElement("span");
  const share = document.createElement("small");
  made.className = kind;
  made.dataset.p = now;
  track.className = "track";
  share.textContent = percent(now);
  track.append(bar("drawn-from", now / most), bar("model", was / most));
  made.append(name, track, share);
  return made;
};
const named = (tag, text) =>
  Object.assign(document.createElement(tag), {textContent: text});
let probs;
const show = () => {
  const context = data.contexts[pick.value], before = softmax(context.logits);
  let z = context.logits;
  for (const [name, change] of Object.entries(filters))
    z = change(z, settings[name]);
  probs = softmax(z);
  const ids = order(context.logits).slice(0, 10);
  if (!ids.includes(context.next)) ids.push(context.next);
  const rest = p => Math.max(0, 1 - ids.map(i => p[i]).reduce(add));
  const others = [rest(probs), rest(before)];
  const most = Math.max(...before, ...probs, ...others);
  rows.replaceChildren(...ids.map(id => {
    const arrow = id === context.next ? "→ " : "";
    const name = named("b", arrow + data.names[id]);
    const bars = row("token", name, probs[id], before[id], most);
    bars.dataset.id = id;
    return bars;
  }), row("others", named("i", `${number(total - ids.length)} others`),
    ...others, most));
  for (const [name, wanted] of Object.entries(data.settings))
    presets[name].setAttribute("aria-pressed",
      Object.keys(wanted).every(knob => wanted[knob] === settings[knob]));
  const kept = probs.filter(x => x > 0).length;
  says.textContent = `${number(kept)} of ${number(total)} tokens can be ` +
    `drawn; ${bits(probs).toFixed(2)} bits of entropy, ` +
    `${bits(before).toFixed(2)} before. The token that came has ` +
    `${percent(probs[context.next])}, ${percent(before[context.next])}` +
    " before.";
  text.textContent = `of what comes after “… ${context.text}”`;
  drawn.textContent = "";
};
data.contexts.forEach((context, i) =>
  pick.append(new Option(context.name, i)));
const sliders = Object.entries(data.knobs).map(([name, values]) => {
  const label = document.createElement("label");
  const value = document.createElement("output");
  const slider = document.createElement("input");
  Object.assign(slider, {type: "range", min: 0, max: values.length - 1});
  slider.setAttribute("aria-label", name);
  slider.dataset.name = name;
  label.append(name + " ", value, slider);
  box.querySelector(".knobs").append(label);
  const take = () => {
    settings[name] = values[slider.value];
    value.textContent = number(settings[name]);
    slider.setAttribute("aria-valuetext", value.textContent);
  };
  slider.addEventListener("input", () => { take(); show(); });
  return wanted => {
    slider.value = values.indexOf(wanted[name]);
    take();
  };
});
const set = name => {
  sliders.forEach(slide => slide(data.settings[name]));
  show();
};
const presets = {};
for (const name of Object.keys(data.settings)) {
  presets[name] = Object.assign(named("button", name), {type: "button"});
  presets[name].addEventListener("click", () => set(name));
  box.querySelector("[role=group]").append(presets[name]);
}
draw.addEventListener("click", () => {
  const ten = Array.from({length: 10}, () => {
    let rest = Math.random();
    const found = probs.findIndex(x => x > 0 && (rest -= x) < 0);
    return data.names[found < 0 ? order(probs)[0] : found];
  });
  drawn.textContent = "Ten draws: " + ten.join(" | ");
});
pick.addEventListener("change", show);
const [where, how] = data.opens;
pick.value = data.contexts.findIndex(context => context.name === where);
set(how);
