/* What a reader can set: how much code is shown, which is remembered, and a page for a projector
   (Alt and P), on which the arrows lead from section to section. A click enlarges a figure, and so
   does a button in its caption. Of a long table five rows are shown. The index
   of the search comes when somebody is about to type. A glossary and
   a table of topics have an A to Z and a filter. A link shows what it leads to (_ext/finish.py). */
"use strict";

const page = document.documentElement;
// The theme would decide this when all is drawn, and draw it once more.
if (page.dataset.theme === "auto") {
  page.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/* The text waits for its face, for a third of a second at most: with another one its lines would move. So they
   would when formulas are set, whose source is hidden for some seconds. */
page.classList.add("waits", "sets");
setTimeout(() => page.classList.remove("sets"), 4000);
const face = Promise.all(["1em", "italic 1em"].map((style) => document.fonts.load(`${style} "Book Serif"`)));
const patience = new Promise((done) => setTimeout(done, 333));
Promise.race([face, patience]).finally(() => page.classList.remove("waits"));

page.dataset.code = "key"; // or "text", or "all": how much code is shown
try {
  page.dataset.code = localStorage.getItem("code") ?? "key";
} catch {} // a browser may keep nothing for a file

function showCode(how) {
  page.dataset.code = how;
  for (const button of document.querySelectorAll(".code-switch button")) {
    button.ariaPressed = button.dataset.code === how;
  }
  const bars = [...document.querySelectorAll("article details.hide")];
  for (const bar of bars) if (how === "all" || !bar.closest(".solution")) bar.open = how === "all";
}

function offerSwitch() {
  for (const button of document.querySelectorAll(".code-switch button")) {
    button.addEventListener("click", () => {
      const top = button.getBoundingClientRect().top;
      showCode(button.dataset.code);
      scrollBy(0, button.getBoundingClientRect().top - top);
      try {
        localStorage.setItem("code", button.dataset.code);
      } catch {}
    });
  }
  showCode(page.dataset.code);
}

/* What a strip says in bold may be guessed first: Enter, or leaving the field, shows it. */
function askForGuesses() {
  for (const hidden of document.querySelectorAll(".strip strong")) {
    const field = Object.assign(document.createElement("input"), { ariaLabel: "Your guess", placeholder: "guess", size: 6 });
    field.addEventListener("change", () => field.blur());
    field.addEventListener("focus", () =>
      field.addEventListener("blur", () => {
        const guess = document.createElement("span");
        guess.className = "guess";
        guess.textContent = field.value.trim() && ` (you: ${field.value.trim()})`;
        field.replaceWith(hidden, guess);
      }, { once: true }),
    );
    hidden.replaceWith(field);
  }
}

/* Of a table with more than eight rows five stand on the page, and a button shows the others. */
function foldTables() {
  for (const table of document.querySelectorAll("article section .cell_output table")) {
    const rows = table.tBodies[0]?.rows.length ?? 0;
    if (rows <= 8) continue;
    table.classList.add("long");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "all-rows" });
    const say = () => (button.textContent = table.classList.contains("long") ? `Show all ${rows} rows` : "Show five rows");
    button.addEventListener("click", () => {
      table.classList.toggle("long");
      say();
    });
    say();
    (table.closest(".pst-scrollable-table-container") ?? table).after(button);
  }
}

function toSection(step) {
  const tops = [...document.querySelectorAll("article :is(h1, h2, h3)")].map(
    (heading) => heading.getBoundingClientRect().top + scrollY - 80,
  );
  const next = step > 0 ? tops.find((top) => top > scrollY + 4) : tops.findLast((top) => top < scrollY - 4);
  if (next !== undefined) scrollTo({ top: next });
}

document.addEventListener("keydown", (event) => {
  if (event.altKey && event.code === "KeyP") page.classList.toggle("projector");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, button, dialog, [contenteditable]")) return;
  if (!page.classList.contains("projector")) return;
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) toSection(step);
});

document.addEventListener("focusin", (event) => {
  if (event.target.matches("input[name=q]") && !Search.hasIndex()) {
    Search.loadIndex(`${page.dataset.content_root}searchindex.js`);
  }
});

function enlarge(image) {
  const dialog = document.createElement("dialog");
  dialog.className = "enlarged";
  const copy = image.cloneNode();
  copy.removeAttribute("style");
  dialog.append(copy);
  dialog.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && dialog.close()); // the theme takes the key
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/* The same for who has no pointer: a button at the end of the caption. */
function offerButton(image) {
  const caption = image.closest("figure").querySelector("figcaption p");
  if (!caption) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "enlarge";
  button.ariaLabel = "Enlarge the figure";
  button.addEventListener("click", () => enlarge(image));
  caption.append(" ", button);
}

/* What slides can be slid with the arrow keys, and only that is a stop of the Tab key. All boxes are
   measured before one is changed: after a change the browser would have to lay out the page anew. What is
   folded waits for the click that opens it. */
function letKeysSlide() {
  const boxes = "pre, figure, .math, .math mjx-container, .pst-scrollable-table-container";
  const slides = (box) => box.scrollWidth > box.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(box).overflowX);
  const seen = [...document.querySelectorAll(`article :is(${boxes})`)].filter((box) => box.checkVisibility());
  const found = seen.map((box) => [box, slides(box)]);
  for (const [box, can] of found) {
    if (can) box.tabIndex = 0;
    else if (box.hasAttribute("tabindex")) box.removeAttribute("tabindex");
  }
}

let planned; // the faces of a page's formulas arrive one by one
function letKeysSlideSoon() {
  clearTimeout(planned);
  planned = setTimeout(letKeysSlide, 50);
}

for (const event of ["load", "resize", "click"]) addEventListener(event, letKeysSlideSoon);
addEventListener("load", () => {
  // What opens a box, or the pages below one in the contents, is called after it.
  for (const button of document.querySelectorAll(".toggle-button")) {
    button.ariaLabel = button.closest(".admonition-title").textContent.trim();
  }
  for (const toggle of document.querySelectorAll("summary:has(> .toctree-toggle)")) {
    toggle.ariaLabel = `Pages below ${toggle.closest("li").querySelector("a").textContent.trim()}`;
  }
});
document.fonts.addEventListener("loadingdone", letKeysSlideSoon);

const preview = document.createElement("div");
preview.className = "preview";
preview.id = "preview";
preview.popover = "manual";
preview.setAttribute("role", "tooltip");
let waiting; // for a pointer to rest on a link, or to come back to it

function place(link) {
  const line = link.getClientRects()[0];
  const below = line.bottom + preview.offsetHeight + 8 < innerHeight;
  preview.style.left = `${Math.max(8, Math.min(line.left, page.clientWidth - preview.offsetWidth - 8))}px`;
  preview.style.top = `${below ? line.bottom + 4 : Math.max(8, line.top - preview.offsetHeight - 4)}px`;
}

async function show(link, template) {
  preview.replaceChildren(template.content.cloneNode(true));
  document.body.append(preview);
  preview.showPopover();
  link.setAttribute("aria-describedby", preview.id);
  place(link);
  await globalThis.MathJax?.typesetPromise?.([preview]);
  if (preview.isConnected) place(link);
}

function hide() {
  clearTimeout(waiting);
  document.querySelector("[aria-describedby=preview]")?.removeAttribute("aria-describedby");
  preview.remove();
}

function offerPreviews() {
  const templates = new Map();
  for (const each of document.querySelectorAll("template[data-preview]")) templates.set(each.dataset.preview, each);
  const later = (what, after) => {
    clearTimeout(waiting);
    waiting = setTimeout(what, after);
  };
  for (const link of document.querySelectorAll("article a.reference.internal")) {
    const template = templates.get(link.getAttribute("href"));
    if (!template) continue;
    const open = () => {
      hide();
      show(link, template);
    };
    link.addEventListener("mouseenter", () => later(open, 250));
    link.addEventListener("mouseleave", () => later(hide, 250));
    link.addEventListener("focus", () => link.matches(":focus-visible") && later(open, 0));
    link.addEventListener("blur", () => later(hide, 0));
  }
  preview.addEventListener("mouseenter", () => clearTimeout(waiting));
  preview.addEventListener("mouseleave", () => later(hide, 250));
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("scroll", () => {
    const link = document.querySelector("[aria-describedby=preview]");
    if (link) place(link);
  });
}

/* Above a long list, its letters and a field that leaves the entries with the words that are typed. */
function offerFinder(list) {
  const entries = [...list.querySelectorAll("tbody tr")].map((row) => [row]);
  for (const part of list.querySelectorAll(":scope > :is(dt, dd)")) {
    if (part.tagName === "DT" && part.previousElementSibling?.tagName !== "DT") entries.push([]);
    entries.at(-1).push(part);
  }
  const finder = document.createElement("nav");
  finder.className = "finder";
  finder.ariaLabel = "A to Z";
  const field = document.createElement("input");
  Object.assign(field, { type: "search", placeholder: "Filter", ariaLabel: "Filter the entries", className: "form-control" });
  const count = finder.appendChild(document.createElement("output"));
  const texts = entries.map((parts) => parts.map((part) => part.textContent).join(" ").toLowerCase());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    const fit = texts.map((text) => words.every((word) => text.includes(word)));
    entries.forEach((parts, i) => parts.forEach((part) => (part.style.display = fit[i] ? "" : "none")));
    count.textContent = `${fit.filter(Boolean).length} of ${fit.length}`;
  });
  finder.prepend(field);
  const firsts = new Map(entries.map(([part]) => [part.textContent.match(/\p{Letter}/u)[0].toUpperCase(), part]).reverse());
  for (const [letter, part] of [...firsts].reverse()) {
    part.id ||= `letter-${letter}`;
    finder.append(Object.assign(document.createElement("a"), { href: `#${part.id}`, textContent: letter }));
  }
  (list.closest(".pst-scrollable-table-container") ?? list).before(finder);
}

/* A figure that can be touched: its modules come when somebody wants to (live/), each of them once. */
const come = {};
const load = (src) =>
  (come[src] ??= new Promise((done, failed) =>
    document.head.append(Object.assign(document.createElement("script"), { src, onload: done, onerror: failed })),
  ));

function offerTouch(place) {
  const name = place.dataset.figure;
  const still = document.getElementById(name); // one that is long has a button, too
  const buttons = [place, still].filter(Boolean).map((each) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Try it", className: "try" });
    button.addEventListener("click", open);
    return each.appendChild(button);
  });
  async function open() {
    for (const button of buttons) button.disabled = true; // it opens once
    const scripts = place.dataset.scripts.split(" ");
    const folder = scripts[0].replace(/[^/]*$/, "");
    document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: `${folder}touch.css` }));
    for (const src of scripts) await load(src);
    const figure = Object.assign(document.createElement("div"), { className: `touch ${name}` });
    for (const button of buttons) button.remove();
    place.append(figure);
    nextToken.figures[name](figure, (module) => load(`${folder}${module}.js`));
    (figure.querySelector("[aria-pressed=true]") ?? figure.querySelector("button")).focus();
  }
}

/* On paper the solutions stand at the end, where nobody reads them by accident. */
const moved = []; // [a solution, the mark of where it stood]
const end = document.createElement("section");

addEventListener("beforeprint", () => {
  const solutions = document.querySelectorAll("article .solution");
  if (!solutions.length) return;
  end.replaceChildren(Object.assign(document.createElement("h2"), { textContent: "Solutions" }));
  for (const solution of solutions) {
    const mark = document.createComment("");
    solution.before(mark);
    moved.push([solution, mark]);
    end.append(solution);
  }
  document.querySelector("article").append(end);
});

addEventListener("afterprint", () => {
  for (const [solution, mark] of moved.splice(0)) mark.replaceWith(solution);
  end.remove();
});

document.addEventListener("DOMContentLoaded", () => {
  offerSwitch();
  foldTables();
  askForGuesses();
  offerPreviews();
  document.querySelectorAll(".live").forEach(offerTouch);
  document.querySelectorAll("article :is(dl.glossary, table.topics)").forEach(offerFinder);
  // The theme's names do not hold the words that stand below these two on a phone.
  document.querySelector(".primary-toggle")?.setAttribute("aria-label", "Contents of the book");
  document.querySelector(".secondary-toggle")?.setAttribute("aria-label", "Sections of this page");
  for (const image of document.querySelectorAll("article figure img")) {
    image.addEventListener("click", () => enlarge(image));
    offerButton(image);
  }
  // On a phone the contents open at the chapter that one reads.
  const opener = document.querySelector(".primary-toggle");
  opener?.addEventListener("click", () => {
    const here = document.querySelectorAll(".bd-sidebar-primary .current.active > a, dialog .current.active > a");
    requestAnimationFrame(() => here.forEach((link) => link.scrollIntoView({ block: "center" })));
  });
});
