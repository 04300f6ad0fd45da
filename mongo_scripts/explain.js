// What a filter or a pipeline touches: shards asked, index keys and documents examined.
//
//   mongosh "$URI" --quiet --eval 'const options = {ns: "city.trips", filter: {gh: {$gte: "dr5r", $lt: "dr5s"}}}' \
//     mongo_scripts/explain.js
//
// Options: ns        the namespace; any collection, adopted or not
//          filter    of a find, with projection, sort, limit, skip, hint if need be; or
//          pipeline  of an aggregation, with hint if need be
//          json      true: one EJSON document instead of text
//
// The query is explained as it is given. How SpatialNoSQL rewrites it: `spatialnosql explain`, whose --show-query can
// be put in here. The server runs the query to count ("executionStats"). Writes nothing: $out and $merge are refused.
load(__dirname + "/lib/shell.js");
(() => {
  const { checkNamespace, collection, deployment, fail, found, on, text } = spatialnosql;
  const defaults = {
    ns: null,
    filter: null,
    pipeline: null,
    projection: null,
    sort: null,
    limit: null,
    skip: null,
    hint: null,
    json: false,
  };
  const chosen = spatialnosql.readOptions(defaults);
  const notes = [];

  function command() {
    const name = on(chosen.ns).name;
    if (chosen.pipeline) {
      const writes = chosen.pipeline.find((stage) => "$out" in stage || "$merge" in stage);
      if (writes) {
        fail(
          `a pipeline with ${Object.keys(writes)[0]} writes, and these scripts never do; leave that stage out`,
        );
      }
      return {
        aggregate: name,
        pipeline: chosen.pipeline,
        cursor: {},
        ...(chosen.hint ? { hint: chosen.hint } : {}),
      };
    }
    const made = { find: name, filter: chosen.filter };
    for (const option of ["projection", "sort", "limit", "skip", "hint"]) {
      if (chosen[option]) {
        made[option] = chosen[option];
      }
    }
    return made;
  }

  // The stages of a plan from the source to the result, with the index of a scan.
  function planText(plan) {
    if (!plan) {
      return null;
    }
    const stage = plan.queryPlan || plan;
    const inputs = stage.inputStages || (stage.inputStage ? [stage.inputStage] : []);
    const name = stage.indexName ? `${stage.stage} ${stage.indexName}` : stage.stage;
    const before = [...new Set(inputs.map(planText))];
    const first = before.length > 1 ? `(${before.join(" | ")})` : before[0];
    return first ? `${first} > ${name}` : name;
  }

  // What one server did, from its executionStats and its plan.
  function part(shard, stats, planner) {
    return {
      shard,
      keys: Number(stats.totalKeysExamined || 0),
      documents: Number(stats.totalDocsExamined || 0),
      returned: Number(stats.nReturned || 0),
      plan: planText(planner && planner.winningPlan),
    };
  }

  // Of an aggregation on one server: either a plain plan, or stages of which the first holds it.
  function ofPipeline(shard, explained) {
    const first = (explained.stages || [{}])[0];
    const plan = explained.executionStats ? explained : first.$cursor || first.$geoNearCursor || {};
    const made = part(shard, plan.executionStats || {}, plan.queryPlanner);
    const last = explained.stages && explained.stages[explained.stages.length - 1];
    return last && last.nReturned !== undefined ? { ...made, returned: Number(last.nReturned) } : made;
  }

  function parts(explained) {
    if (explained.shards) {
      return Object.entries(explained.shards).map(([shard, one]) => ofPipeline(shard, one));
    }
    const stats = explained.executionStats;
    const asked = stats && stats.executionStages && stats.executionStages.shards;
    if (!asked) {
      return [ofPipeline(null, explained)];
    }
    const planners = explained.queryPlanner.winningPlan.shards || [];
    return asked.map((one) =>
      part(
        one.shardName,
        one,
        planners.find((planner) => planner.shardName === one.shardName),
      ),
    );
  }

  function sum(rows, name) {
    return rows.reduce((total, row) => total + row[name], 0);
  }

  if (!chosen.ns || typeof chosen.ns !== "string") {
    fail("explain.js needs a namespace: --eval 'const options = {ns: \"city.trips\", filter: {...}}'");
  }
  checkNamespace(chosen.ns);
  if (Boolean(chosen.filter) === Boolean(chosen.pipeline)) {
    fail("explain.js needs either filter: {...} or pipeline: [...]");
  }
  if (!found(chosen.ns)) {
    fail(`${chosen.ns} does not exist`);
  }
  const where = deployment(notes);
  const explained = on(chosen.ns).database.runCommand({ explain: command(), verbosity: "executionStats" });
  const rows = parts(explained);
  const total = Number(collection(chosen.ns).estimatedDocumentCount());
  const report = {
    ns: chosen.ns,
    deployment: where,
    documents: total,
    asked: rows.length,
    keys: sum(rows, "keys"),
    examined: sum(rows, "documents"),
    returned: sum(rows, "returned"),
    parts: rows,
    notes,
  };
  const known = where.shards && where.shards.length ? ` of ${where.shards.length}` : "";
  const lines = [
    where.kind === "sharded" ? `${chosen.ns}: ${rows.length}${known} shards asked` : chosen.ns,
    ...text.table(
      ["shard", "keys>", "documents>", "returned>", "plan"],
      [
        ...rows.map((row) => [
          row.shard,
          text.number(row.keys),
          text.number(row.documents),
          text.number(row.returned),
          row.plan,
        ]),
        ["all", text.number(report.keys), text.number(report.examined), text.number(report.returned), ""],
      ],
    ),
    `  Examined: ${text.number(report.keys)} index keys, ` +
      `${text.number(report.examined)} of about ${text.number(total)} documents.`,
  ];
  spatialnosql.show(chosen.json, report, lines);
})();
