// How the site's search ranks what it found. Sphinx puts this file into its own script.
// A chapter that introduces a term comes first, then the glossary, then chapters that name it,
// and last what lists or quotes: topics, errata, reference.
var Scorer = {
  score: ([page, , , , score]) => {
    if (/^book\/(likelihood|tokens|attention|gpt|today)\//.test(page)) return score + 60;
    return page === "book/glossary" ? score : score - 60;
  },
  // The rest are Sphinx's own values.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// An excerpt shows text: a formula in it would be raw TeX.
document.addEventListener("DOMContentLoaded", () => {
  const plain = Search.htmlToText;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    page.querySelectorAll(".math").forEach((formula) => formula.replaceWith("…"));
    return plain(page.documentElement.outerHTML, anchor);
  };
});
