// The spatial collections: state, precision and skew, where their documents are.
//
//   mongosh "$URI" --quiet mongo_scripts/status.js
//   mongosh "$URI" --quiet --eval 'const options = {ns: "city.trips"}' mongo_scripts/status.js
//
// Options: ns     one namespace or an array of them (default: every adopted collection)
//          exact  true: documents of each shard counted now, along the index of gh
//          json   true: one EJSON document instead of text
//
// Cheap: reads metadata and counters. The counters may be off while documents are moved from shard to shard, and until
// what has moved away is deleted; exact is not. Writes nothing.
load(__dirname + "/lib/shell.js");
(() => {
  const { adopted, collection, deployment, ghIndex, ifAllowed, isGuaranteed, keyToText, on, sharding, text } =
    spatialnosql;
  const chosen = spatialnosql.readOptions({ ns: null, exact: false, json: false });
  const notes = [];
  const where = deployment(notes);

  // Documents of each shard by namespace. Not $collStats if it can be had: that counts what has moved away, too.
  function ownedByNamespace() {
    const pipeline = [{ $shardedDataDistribution: {} }];
    const listed = ifAllowed(
      () => db.getSiblingDB("admin").aggregate(pipeline).toArray(),
      notes,
      "This user may not ask for the distribution (role clusterMonitor): what is being moved may count twice.",
    );
    const owned = {};
    for (const one of listed || []) {
      owned[one.ns] = one.shards.map((shard) => ({
        shard: shard.shardName,
        documents: Number(shard.numOwnedDocuments),
      }));
    }
    return owned;
  }

  // What each shard returns of a scan of the index, without what has moved away; no document is read.
  function countedNow(one) {
    const { database, name } = on(one.ns);
    const find = { find: name, filter: {}, projection: { _id: 0, [one.gh]: 1 }, ...ghIndex(one) };
    const stats = database.runCommand({ explain: find, verbosity: "executionStats" }).executionStats;
    const shards = stats.executionStages.shards || [{ executionStages: stats }];
    return shards.map((each) => ({
      shard: each.shardName || null,
      documents: Number(each.executionStages.nReturned),
    }));
  }

  function distribution(one, key, owned) {
    const ns = one.ns;
    let rows = chosen.exact ? countedNow(one) : owned[ns];
    if (!rows) {
      const counted = ifAllowed(
        () =>
          collection(ns)
            .aggregate([{ $collStats: { count: {} } }])
            .toArray(),
        notes,
        `This user may not read ${ns}: its documents cannot be counted.`,
      );
      rows = (counted || []).map((one) => ({ shard: one.shard || null, documents: Number(one.count) }));
    }
    // Sharded, but nothing there yet: that is worth seeing.
    for (const shard of key && where.shards ? where.shards : []) {
      if (!rows.some((row) => row.shard === shard)) {
        rows.push({ shard, documents: 0 });
      }
    }
    const total = rows.reduce((sum, row) => sum + row.documents, 0);
    rows.sort((a, b) => (a.shard < b.shard ? -1 : 1));
    return rows.map((row) => ({ ...row, share: total ? row.documents / total : 0 }));
  }

  function chunksByShard(uuid) {
    const pipeline = [{ $match: { uuid } }, { $group: { _id: "$shard", n: { $sum: 1 } } }];
    const counts = {};
    for (const row of db.getSiblingDB("config").chunks.aggregate(pipeline).toArray()) {
      counts[row._id] = Number(row.n);
    }
    return counts;
  }

  function unevenness(rows) {
    const total = rows.reduce((sum, row) => sum + row.documents, 0);
    return total ? (Math.max(...rows.map((row) => row.documents)) * rows.length) / total : 1;
  }

  function describe(one, owned) {
    const own = [];
    const report = {
      ns: one.ns,
      state: one.state,
      exists: Boolean(one.there),
      location: one.location,
      gh: one.gh,
      form: one.form,
      unhashed: one.unhashed,
      guaranteed: Boolean(one.there) && isGuaranteed(one),
      sharded: null,
      key: null,
      documents: null,
      shards: [],
      imbalance: null,
      precision: one.stored.precision || null,
      histogram: one.stored.histogram || null,
      notes: own,
    };
    if (!one.there) {
      own.push(`${one.ns} does not exist any more; only its metadata is left.`);
      return report;
    }
    if (one.state !== "ready") {
      own.push(
        "It is still being adopted; if that was interrupted, run again " +
          `\`spatialnosql adopt ${one.ns} --location ${one.location}\`.`,
      );
    }
    if (!report.guaranteed) {
      own.push(
        "No validator guarantees that gh is true: queries pass unchanged unless the caller trusts gh.",
      );
    }
    if (!report.precision) {
      own.push(`No statistics: run \`spatialnosql analyze ${one.ns}\`.`);
    }
    const known = where.kind === "sharded" ? sharding(one.ns, notes) : false;
    report.sharded = known === null ? null : Boolean(known);
    report.key = known ? known.key : null;
    report.shards = distribution(one, report.key, owned);
    report.documents = report.shards.reduce((sum, row) => sum + row.documents, 0);
    report.imbalance = unevenness(report.shards);
    if (known) {
      const counts = chunksByShard(known.uuid);
      report.shards = report.shards.map((row) => ({ ...row, chunks: counts[row.shard] || 0 }));
      if (Object.keys(known.key)[0] !== one.gh) {
        own.push(`It is sharded by ${keyToText(known.key)}, not by geohash: queries ask every shard.`);
      }
    } else if (known === false && where.kind === "sharded") {
      own.push("It is not sharded: all of it is on one shard.");
    }
    return report;
  }

  function rowOf(precision) {
    return ((precision && precision.table) || []).find((row) => row.bits === precision.bits) || {};
  }

  function overview(reports) {
    const columns = [
      "collection",
      "state",
      "documents>",
      "precision>",
      "skewness>",
      "largest cell>",
      "max/mean load>",
      "shards>",
      "chunks>",
      "analyzed",
    ];
    return text.table(
      columns,
      reports.map((one) => {
        const row = rowOf(one.precision);
        return [
          one.ns,
          one.exists ? one.state : "gone",
          text.number(one.documents),
          one.precision ? `${one.precision.bits} bits` : null,
          text.fixed(row.skewness, 1),
          text.share(row.largest),
          text.fixed(one.imbalance, 2),
          one.shards.filter((shard) => shard.documents).length,
          one.key ? text.number(one.shards.reduce((sum, shard) => sum + shard.chunks, 0)) : null,
          text.age(one.histogram && one.histogram.at, new Date()),
        ];
      }),
    );
  }

  function details(one) {
    const by = one.key ? `, sharded by ${keyToText(one.key)}` : "";
    const lines = ["", `${one.ns}: points in ${one.location}, geohash in ${one.gh}${by}`];
    if (one.shards.length && one.shards[0].shard) {
      const rows = one.shards.map((row) => [
        row.shard,
        text.number(row.documents),
        text.share(row.share),
        text.number(row.chunks),
      ]);
      lines.push(...text.table(["shard", "documents>", "share>", "chunks>"], rows));
    }
    if (one.precision) {
      const rows = (one.precision.table || []).map((row) => [
        (row.bits === one.precision.bits ? "* " : "") + row.bits,
        text.number(row.cells),
        text.fixed(row.skewness, 1),
        text.share(row.largest),
        text.fixed(row.imbalance, 2),
      ]);
      lines.push(
        ...(rows.length
          ? text.table(["bits>", "cells>", "skewness>", "largest cell>", "max/mean load>"], rows)
          : []),
      );
      lines.push(`  Precision: ${one.precision.bits} bits: ${one.precision.reason}.`);
    }
    return [...lines, ...one.notes.map((note) => `  Note: ${note}`)];
  }

  // The cells themselves are megabytes, and of no use here.
  const projection = { "histogram.cells": 0, "histogram.counts": 0 };
  const collections = adopted(chosen.ns, projection, notes);
  const owned = where.kind === "sharded" && collections.length ? ownedByNamespace() : {};
  const reports = [];
  for (const one of collections) {
    reports.push(describe(one, owned));
  }
  const lines = reports.length ? [...overview(reports), ...reports.map(details).flat()] : [];
  spatialnosql.show(chosen.json, { deployment: where, collections: reports, notes }, lines);
})();
