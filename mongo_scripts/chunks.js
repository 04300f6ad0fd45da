// Each chunk of the spatial collections: range of geohashes, bounding box, documents, shard.
//
//   mongosh "$URI" --quiet mongo_scripts/chunks.js
//   mongosh "$URI" --quiet --eval 'const options = {ns: "city.trips", fast: true}' mongo_scripts/chunks.js
//
// Options: ns    one namespace or an array of them (default: every adopted collection)
//          fast  true: documents estimated from the statistics, instead of counted along the index
//          rows  at most so many chunks of a collection, in order of geohash (default: 100; 0: all)
//          json  true: one EJSON document instead of text
//
// A box is the smallest that holds every place of the range; longitude before latitude. Writes nothing.
load(__dirname + "/lib/shell.js");
(() => {
  const { chunk, deployment, existing, geohash, histogram, keyToText, on, sharding, text, toText } =
    spatialnosql;
  const chosen = spatialnosql.readOptions({ ns: null, fast: false, rows: 100, json: false });
  const notes = [];
  const where = deployment(notes);

  // The server counts the keys of the index between two bounds: what the owning shard has, no document read.
  function countBetween(ns, key, one) {
    const command = { dataSize: ns, keyPattern: key, min: one.min, max: one.max, estimate: true };
    return Number(on(ns).database.runCommand(command).numObjects);
  }

  function describe(one, known) {
    const isByGeohash = Object.keys(known.key)[0] === one.gh;
    const config = db.getSiblingDB("config");
    const total = Number(config.chunks.countDocuments({ uuid: known.uuid }));
    const listed = config.chunks
      .find({ uuid: known.uuid }, { min: 1, max: 1, shard: 1, jumbo: 1 })
      .sort({ min: 1 })
      .limit(chosen.rows)
      .toArray();
    const points = one.histogram && histogram.pointsBefore(one.histogram);
    const rows = [];
    for (const each of listed) {
      const [lo, hi] = isByGeohash ? chunk.chunkToRange(each, one.gh) : [0n, geohash.END_OF_CELLS];
      let documents = null;
      if (!chosen.fast) {
        documents = countBetween(one.ns, known.key, each);
      } else if (points && isByGeohash) {
        documents = Math.round(points(hi) - points(lo));
      }
      rows.push({
        from: isByGeohash ? chunk.boundToText(each.min, one.gh, toText) : toText(each.min),
        to: isByGeohash ? chunk.boundToText(each.max, one.gh, toText) : toText(each.max),
        min: each.min,
        max: each.max,
        box: isByGeohash ? geohash.rangeToBox(lo, hi) : null,
        documents,
        shard: each.shard,
        jumbo: Boolean(each.jumbo),
      });
    }
    const own = [];
    if (!isByGeohash) {
      own.push(`It is sharded by ${keyToText(known.key)}, not by geohash: its chunks have no boxes.`);
    }
    if (rows.length < total) {
      own.push(
        `These are the first ${text.number(rows.length)} of ${text.number(total)} chunks; rows: 0 shows all.`,
      );
    }
    if (chosen.fast) {
      const estimated = one.histogram && isByGeohash;
      own.push(
        estimated
          ? `Documents are estimated from the statistics (${text.age(one.histogram.at, new Date())}).`
          : `No statistics to estimate from: run \`spatialnosql analyze ${one.ns}\`, or leave out fast.`,
      );
    }
    return { ns: one.ns, key: known.key, total, chunks: rows, notes: own };
  }

  function lines(report) {
    if (!report.key) {
      return [report.ns, ...report.notes.map((note) => `  Note: ${note}`), ""];
    }
    const rows = report.chunks.map((row) => [
      row.from,
      row.to,
      text.box(row.box),
      text.number(row.documents),
      row.shard + (row.jumbo ? " (jumbo)" : ""),
    ]);
    return [
      `${report.ns}: ${text.number(report.total)} chunks by ${keyToText(report.key)}`,
      ...text.table(["from", "to (without)", "west south .. east north", "documents>", "shard"], rows),
      ...report.notes.map((note) => `  Note: ${note}`),
      "",
    ];
  }

  const reports = [];
  for (const one of existing(chosen.ns, chosen.fast ? {} : { histogram: 0 }, notes)) {
    const known = where.kind === "sharded" ? sharding(one.ns, notes) : false;
    if (known) {
      reports.push(describe({ ...one, histogram: histogram.fromDocument(one.stored.histogram) }, known));
      continue;
    }
    const words =
      known === null ? "Its chunks cannot be seen by this user." : "It is not sharded: it has no chunks.";
    reports.push({ ns: one.ns, key: null, total: 0, chunks: [], notes: [words] });
  }
  spatialnosql.show(
    chosen.json,
    { deployment: where, collections: reports, notes },
    reports.map(lines).flat(),
  );
})();
