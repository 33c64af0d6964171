// Guide first, tables last: many pages match a query equally well.
var Scorer = {
  score: ([page, , , , score]) => {
    if (/^(guide|get_started|install)/.test(page)) return score + 6;
    if (/^algorithms/.test(page)) return score + 4;
    if (/^(changelog|benchmarks|architecture|coming_from)/.test(page)) return score - 4;
    return score;
  },
  // The theme's own weights, which a file like this one replaces.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
