// Pages for users come before those for contributors.
var Scorer = {
  score: ([page, , , , score]) => (page.startsWith("contributing/") ? score - 20 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
