// The heaviest cells of the spatial collections: where the points are, and which shards carry them.
//
//   mongosh "$URI" --quiet mongo_scripts/hotspots.js
//   mongosh "$URI" --quiet --eval 'const options = {ns: "city.trips", bits: 30, top: 10}' mongo_scripts/hotspots.js
//
// Options: ns     one namespace or an array of them (default: every adopted collection)
//          bits   the precision of the cells, 1 to 60; five bits are one character (default: the chosen precision)
//          top    how many cells (default: 20)
//          exact  true: counted now, along the index of gh, instead of taken from the statistics
//          json   true: one EJSON document instead of text
//
// Without statistics, or finer than they are, cells are counted on the server. Writes nothing.
load(__dirname + "/lib/shell.js");
(() => {
  const { chunk, collection, deployment, existing, geohash, ghIndex, histogram, sharding, text } =
    spatialnosql;
  const chosen = spatialnosql.readOptions({ ns: null, bits: null, top: 20, exact: false, json: false });
  const notes = [];
  const where = deployment(notes);
  const DEFAULT_BITS = 30;

  function counted(one, bits) {
    const strings = { $match: { [one.gh]: { $gte: "" } } };
    const group = { $group: { _id: geohash.cellExpression(one.gh, bits), n: { $sum: 1 } } };
    const total = { $group: { _id: null, n: { $sum: "$n" }, cells: { $sum: 1 } } };
    const heaviest = [{ $sort: { n: -1, _id: 1 } }, { $limit: Math.max(chosen.top, 1) }];
    const pipeline = [strings, group, { $facet: { heaviest, total: [total] } }];
    const [result] = collection(one.ns)
      .aggregate(pipeline, { allowDiskUse: true, ...ghIndex(one) })
      .toArray();
    const sum = result.total[0] || { n: 0, cells: 0 };
    const shift = BigInt(geohash.BITS - bits);
    const rows = result.heaviest
      .slice(0, chosen.top)
      .map((row) => ({ cell: geohash.stringToBound(row._id) >> shift, documents: Number(row.n) }));
    return { rows, documents: Number(sum.n), cells: Number(sum.cells), at: new Date() };
  }

  function stored(statistics, bits) {
    const coarse = histogram.coarsened(statistics, bits);
    const rows = histogram.heaviest(coarse, chosen.top);
    return { rows, documents: statistics.total, cells: coarse.cells.length, at: statistics.at };
  }

  // Which range of cells is on which shard; empty where nobody may know or nothing is sharded by geohash.
  function spansOf(one) {
    const known = where.kind === "sharded" ? sharding(one.ns, notes) : false;
    if (!known || Object.keys(known.key)[0] !== one.gh) {
      return [];
    }
    const listed = db
      .getSiblingDB("config")
      .chunks.find({ uuid: known.uuid }, { min: 1, max: 1, shard: 1 })
      .sort({ min: 1 })
      .toArray();
    return listed.map((each) => [...chunk.chunkToRange(each, one.gh), each.shard]);
  }

  function describe(one) {
    const statistics = histogram.fromDocument(one.stored.histogram);
    const precision = one.stored.precision && Number(one.stored.precision.bits);
    const bits = chosen.bits || precision || (statistics && statistics.bits) || DEFAULT_BITS;
    const isStored = Boolean(statistics) && statistics.total > 0 && !chosen.exact && bits <= statistics.bits;
    const result = isStored ? stored(statistics, bits) : counted(one, bits);
    const spans = spansOf(one);
    // As many characters as the cell has, though zeros at the end of a bound mean nothing.
    const name = (bound) =>
      geohash.boundToString(bound).padEnd(bound < geohash.END_OF_CELLS ? Math.ceil(bits / 5) : 0, "0");
    const cells = result.rows.map((row) => {
      const [lo, hi] = geohash.cellToRange(row.cell, bits);
      return {
        from: name(lo),
        to: name(hi),
        box: geohash.cellToBox(row.cell, bits),
        documents: row.documents,
        share: result.documents ? row.documents / result.documents : 0,
        shards: chunk.shardsOfRange(spans, lo, hi),
      };
    });
    const own = isStored
      ? [`From the statistics (${text.age(result.at, new Date())}); exact: true counts now.`]
      : [];
    if (!statistics) {
      own.push(`No statistics, so the cells were counted: run \`spatialnosql analyze ${one.ns}\`.`);
    }
    return {
      ns: one.ns,
      bits,
      source: isStored ? "statistics" : "counted",
      at: result.at,
      documents: result.documents,
      occupied: result.cells,
      cells,
      notes: own,
    };
  }

  function lines(report) {
    let sum = 0;
    const rows = report.cells.map((cell) => {
      sum += cell.share;
      const shards = cell.shards.length > 3 ? `${cell.shards.length} shards` : cell.shards.join(", ");
      return [
        cell.from,
        cell.to,
        text.box(cell.box),
        text.number(cell.documents),
        text.share(cell.share),
        text.share(sum),
        shards,
      ];
    });
    const occupied = `${text.number(report.occupied)} cells of ${report.bits} bits`;
    const head = `${report.ns}: ${text.number(report.documents)} documents in ${occupied}`;
    const columns = [
      "from",
      "to (without)",
      "west south .. east north",
      "documents>",
      "share>",
      "together>",
      "shard",
    ];
    return [
      head,
      ...(rows.length ? text.table(columns, rows) : []),
      ...report.notes.map((note) => `  Note: ${note}`),
      "",
    ];
  }

  const reports = [];
  for (const one of existing(chosen.ns, {}, notes)) {
    reports.push(describe(one));
  }
  spatialnosql.show(
    chosen.json,
    { deployment: where, collections: reports, notes },
    reports.map(lines).flat(),
  );
})();
