// Documents whose gh is missing or stale, found by the server from their locations.
//
//   mongosh "$URI" --quiet mongo_scripts/verify.js
//   mongosh "$URI" --quiet --eval 'const options = {ns: "city.trips"}' mongo_scripts/verify.js
//
// Options: ns       one namespace or an array of them (default: every adopted collection)
//          samples  how many _id of each kind to show (default: 5)
//          json     true: one EJSON document instead of text
//
// Reads every document once, on the shards; only the counts come back. Exit code 1 if any gh is not true.
// Writes nothing: `spatialnosql verify --repair` mends.
load(__dirname + "/lib/shell.js");
(() => {
  const { collection, deployment, existing, fail, geohash, isGuaranteed, text } = spatialnosql;
  const chosen = spatialnosql.readOptions({ ns: null, samples: 5, json: false });
  const notes = [];
  const where = deployment(notes);

  function describe(one) {
    const few = { $firstN: { input: "$_id", n: Math.max(chosen.samples, 1) } };
    const group = { _id: geohash.reasonExpression(one), n: { $sum: 1 }, samples: few };
    const rows = collection(one.ns)
      .aggregate([{ $group: group }])
      .toArray();
    const checked = rows.reduce((sum, row) => sum + Number(row.n), 0);
    const problems = rows
      .filter((row) => row._id !== geohash.FINE)
      .sort((a, b) => (a._id < b._id ? -1 : 1))
      .map((row) => ({
        reason: row._id,
        documents: Number(row.n),
        samples: row.samples.slice(0, chosen.samples),
      }));
    const guaranteed = isGuaranteed(one);
    return { ns: one.ns, checked, sound: !problems.length, guaranteed, problems };
  }

  function lines(report) {
    const guarantee = report.guaranteed
      ? "the validator keeps it so"
      : "no validator guarantees it for later writes";
    const head = `${report.ns}: ${text.number(report.checked)} documents checked`;
    if (report.sound) {
      return [`${head}: every gh is true; ${guarantee}`];
    }
    const rows = report.problems.map((problem) => [
      problem.reason,
      text.number(problem.documents),
      problem.samples.map((sample) => spatialnosql.toText(sample)).join(", "),
    ]);
    return [head, ...text.table(["what is wrong", "documents>", "_id of some"], rows)];
  }

  const reports = [];
  for (const one of existing(chosen.ns, { histogram: 0 }, notes)) {
    reports.push(describe(one));
  }
  spatialnosql.show(
    chosen.json,
    { deployment: where, collections: reports, notes },
    reports.map(lines).flat(),
  );
  const wrong = reports
    .filter((report) => !report.sound)
    .map((report) => {
      const count = report.problems.reduce((sum, problem) => sum + problem.documents, 0);
      return `${text.number(count)} of ${text.number(report.checked)} documents of ${report.ns} have no true gh`;
    });
  if (wrong.length) {
    fail(wrong.join("; "));
  }
})();
