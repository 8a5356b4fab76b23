// The site's search: Sphinx loads this file after its own script. It ranks pages by rare words, by words in
// headings, and by names of which a question has every word, and shows of each page the section that answers
// best, with the text that the index has (`finding.py`): so it works from a disk, too.
// What lists, quotes or describes comes behind what teaches.
const WEIGHTS = [
  [/^book\/(topics|sources|changes|bibliography|architecture)$/, 0.2],
  [/^book\/reference\//, 0.2],
  [/^book\/(glossary|index)$/, 0.3],
  [/^(?!book)/, 0.2],
];
const HALF = 20; // a word that a page has so often counts half of what it can

const Find = {
  fold: (word) => {
    const folds = Object.entries(Search._index.folds);
    return new Stemmer().stemWord(folds.reduce((w, [old, to]) => w.replace(new RegExp(old, "g"), to), word));
  },

  words: (query) =>
    query.toLowerCase().replace(/√/g, " sqrt ").replace(/['’]/g, "").split(/[^\p{Letter}\p{Number}]+/u).filter(Boolean),

  /* Names in the index that a question has, the longest first and none within another, as lists of words. */
  names: (folded, index) => {
    const found = [];
    const free = folded.map(() => true);
    for (let size = Math.min(6, folded.length); size; size--) {
      for (let i = 0; i + size <= folded.length; i++) {
        const name = folded.slice(i, i + size);
        if (!Object.hasOwn(index.names, name.join(" ")) || !free.slice(i, i + size).every(Boolean)) continue;
        free.fill(false, i, i + size);
        found.push(name);
      }
    }
    return found;
  },

  /* [[section, count], …] of a word; if there is none, of the words that begin so, or that are nearly so. */
  places: (term, index) => {
    const all = Object.keys(index.words);
    const kinds = [(w) => w === term, (w) => w.startsWith(term), (w) => Find.near(w, term)];
    const found = kinds.map((kind) => all.filter(kind)).find((some) => some.length) ?? [];
    return found.flatMap((w) => Find.unpacked(index.words[w]));
  },

  /* How far on the next section is, and how often it has the word; once, unless the step is negative. */
  unpacked: (steps) => {
    const found = [];
    let section = -1;
    for (let i = 0; i < steps.length; i++) {
      section += Math.abs(steps[i]);
      found.push([section, steps[i] < 0 ? steps[++i] : 1]);
    }
    return found;
  },

  /* Do two words differ in one letter, changed, left out, put in or moved, and maybe in their endings? */
  near: (a, b) => {
    let i = 0;
    while (i < a.length && a[i] === b[i]) i++;
    const ends = [[1, 1], [0, 1], [1, 0], [2, 2]].map(([m, n]) => [a.slice(i + m), b.slice(i + n)]);
    const alike = ([x, y]) => x === y || (Math.min(x.length, y.length) > 3 && (x.startsWith(y) || y.startsWith(x)));
    return i > 1 && a.length > 4 && (i === a.length || ends.some(alike));
  },

  /* The best section of each page, the best page first. */
  search: (query) => {
    const index = Search._index;
    const typed = Find.words(query);
    const folded = typed.map(Find.fold);
    const joined = folded.slice(1).map((_, i) => Find.fold(typed[i] + typed[i + 1]));
    const telling = folded.filter((_, i) => !index.idle.includes(typed[i]));
    const terms = new Set([...(telling.length ? telling : folded), ...joined.filter((w) => Object.hasOwn(index.words, w))]);
    const pages = new Map();
    const add = (section, score, term) => {
      const page = index.sections[section][0];
      if (!pages.has(page)) pages.set(page, { score: 0, best: new Map(), terms: new Set() });
      const entry = pages.get(page);
      entry.best.set(section, (entry.best.get(section) ?? 0) + score);
      if (term) entry.terms.add(term);
      return entry;
    };
    const rare = {};
    for (const term of terms) {
      const places = Find.places(term, index);
      const sums = new Map();
      for (const [section, count] of places) {
        const page = index.sections[section][0];
        sums.set(page, (sums.get(page) ?? 0) + count);
      }
      rare[term] = Math.log(1 + index.pages.length / sums.size);
      for (const [section, count] of places) add(section, (rare[term] * count) / (count + HALF), term);
      for (const [page, sum] of sums) pages.get(page).score += (rare[term] * sum) / (sum + HALF);
    }
    for (const name of Find.names(folded, index)) {
      const sections = index.names[name.join(" ")];
      const worth = name.reduce((sum, word) => sum + (rare[word] ?? 0), 0);
      for (const section of sections) {
        const [page, , heading] = index.sections[section];
        const share = heading === index.pages[page][1] ? 1 : 1 / sections.length; // a title's names are its own
        add(section, worth * share).score += worth * share;
      }
    }
    const hits = [...pages].map(([page, entry]) => {
      const [section, best] = [...entry.best].reduce((a, b) => (b[1] > a[1] ? b : a));
      const weight = WEIGHTS.find(([kind]) => kind.test(index.pages[page][0]))?.[1] ?? 1;
      return { page, section, score: (weight * (entry.score + best) * entry.terms.size) / terms.size };
    });
    return hits.sort((a, b) => b.score - a.score).slice(0, 20);
  },

  show: (query) => {
    const index = Search._index;
    const hits = Find.search(query);
    for (const { page, section } of hits) {
      const [name, title] = index.pages[page];
      const [, anchor, heading, text] = index.sections[section];
      const item = document.createElement("li");
      const link = item.appendChild(document.createElement("a"));
      link.href = `${name}.html#${anchor}`;
      link.textContent = heading === title ? title : `${title} › ${heading}`;
      const said = item.appendChild(document.createElement("p"));
      said.className = "context";
      said.textContent = text;
      Search.output.append(item);
    }
    _finishSearch(hits.length);
  },
};

Search.query = Find.show;
