// What the scripts share when they talk to the server. Loaded by each of them; defines one name, `spatialnosql`.
// Everything here only reads.
const spatialnosql = (() => {
  const geohash = require(__dirname + "/geohash.js");
  const histogram = require(__dirname + "/histogram.js");
  const chunk = require(__dirname + "/chunk.js");
  const text = require(__dirname + "/table.js");

  const KINDS = {
    ns: "a string, or an array of strings",
    json: "true or false",
    fast: "true or false",
    exact: "true or false",
    rows: "a whole number, 0 for all",
    top: "a whole number",
    bits: "a whole number from 1 to 60",
    samples: "a whole number",
    limit: "a whole number",
    skip: "a whole number",
    filter: "an object",
    pipeline: "an array",
    projection: "an object",
    sort: "an object",
    hint: "a string or an object",
  };
  // Unauthorized; and what Atlas says instead.
  const DENIED = [13, 8000];

  // -- options and errors --

  function fail(message) {
    const error = new Error(message);
    error.name = "spatialnosql";
    throw error;
  }

  function isRight(kind, value) {
    const isWhole = Number.isInteger(value) && value >= 0;
    if (kind === KINDS.ns) {
      return (
        typeof value === "string" || (Array.isArray(value) && value.every((one) => typeof one === "string"))
      );
    }
    if (kind === KINDS.bits) {
      return isWhole && value >= 1 && value <= 60;
    }
    if (kind === KINDS.samples || kind === KINDS.rows) {
      return isWhole;
    }
    if (kind === KINDS.json) {
      return typeof value === "boolean";
    }
    if (kind === KINDS.pipeline) {
      return Array.isArray(value);
    }
    const isObject = typeof value === "object" && !Array.isArray(value);
    return isObject || (kind === KINDS.hint && typeof value === "string");
  }

  // The options of --eval 'const options = {...}', checked, over the defaults of a script. Options of the other
  // scripts are let through: in a shell `options` stays from one load() to the next.
  function readOptions(defaults) {
    const given = typeof options === "undefined" || options === null ? {} : options;
    if (typeof given !== "object" || Array.isArray(given)) {
      fail('options must be an object, for example {ns: "city.trips"}');
    }
    for (const [name, value] of Object.entries(given)) {
      if (!(name in KINDS)) {
        fail(`there is no option ${name}; this script takes ${Object.keys(defaults).join(", ")}`);
      }
      if (value !== null && value !== undefined && !isRight(KINDS[name], value)) {
        fail(`option ${name} is ${EJSON.stringify(value)}; it must be ${KINDS[name]}`);
      }
    }
    return { ...defaults, ...given };
  }

  // What a query returns, or null where the user may not ask; `notes` then says so, once.
  function ifAllowed(ask, notes, note) {
    try {
      const answer = ask(); // not returned at once: mongosh would wait for it after the catch
      return answer;
    } catch (error) {
      if (!DENIED.includes(error.code)) {
        throw error;
      }
      if (!notes.includes(note)) {
        notes.push(note);
      }
      return null;
    }
  }

  // -- the deployment --

  function on(ns) {
    const dot = ns.indexOf(".");
    return { database: db.getSiblingDB(ns.slice(0, dot)), name: ns.slice(dot + 1) };
  }

  function collection(ns) {
    const { database, name } = on(ns);
    return database.getCollection(name);
  }

  // What this is: {kind, shards}. The names of the shards are null where the user may not know them.
  function deployment(notes) {
    const hello = db.adminCommand({ hello: 1 });
    if (hello.msg !== "isdbgrid") {
      const kind = hello.setName ? "replica set" : "standalone";
      notes.push(
        `This MongoDB is a ${kind}, not sharded: there are no chunks, and all documents are in one place.`,
      );
      return { kind, shards: [] };
    }
    const listed = ifAllowed(
      () => db.adminCommand({ listShards: 1 }).shards,
      notes,
      "This user may not list the shards (role clusterMonitor): only those with documents are seen.",
    );
    return { kind: "sharded", shards: listed && listed.map((one) => one._id).sort() };
  }

  // The options of a collection as the server has them, or null if it does not exist.
  function found(ns) {
    const { database, name } = on(ns);
    const listed = database.runCommand({ listCollections: 1, filter: { name } });
    return listed.cursor.firstBatch[0] || null;
  }

  function checkNamespace(ns) {
    const dot = ns.indexOf(".");
    if (dot < 1 || dot === ns.length - 1) {
      fail(`${EJSON.stringify(ns)} is no namespace; write it as DATABASE.COLLECTION`);
    }
  }

  const HOW_TO_READ = "where the spatial collections are recorded (role read on database spatialnosql)";
  const NOTHING = "No collection is adopted here: spatialnosql.collections is empty.";

  // The metadata of the collections to look at: all that are adopted, or those of the option ns.
  function metadata(names, projection) {
    const denied = [];
    const stored = ifAllowed(
      () => {
        const filter = names ? { _id: { $in: names } } : {};
        const all = db.getSiblingDB("spatialnosql").getCollection("collections");
        return all.find(filter, projection).sort({ _id: 1 }).toArray();
      },
      denied,
      `this user may not read spatialnosql.collections, ${HOW_TO_READ}`,
    );
    return stored === null ? fail(denied[0]) : stored;
  }

  // The collections to look at. `there` is what the server says of each, null if it does not exist any more.
  function adopted(wanted, projection, notes) {
    const names = wanted === null || wanted === undefined ? null : [].concat(wanted);
    for (const ns of names || []) {
      checkNamespace(ns);
    }
    const stored = metadata(names, projection);
    for (const ns of names || []) {
      if (!stored.some((one) => one._id === ns)) {
        const adopt = `was never adopted; run \`spatialnosql adopt ${ns} --location FIELD\``;
        fail(`${ns} ${found(ns) ? adopt : "does not exist"}`);
      }
    }
    if (!stored.length) {
      notes.unshift(NOTHING);
    }
    const collections = [];
    for (const one of stored) {
      const before = notes.length;
      const there = ifAllowed(
        () => found(one._id),
        notes,
        `This user may not read ${one._id}: it is left out.`,
      );
      if (notes.length > before) {
        continue;
      }
      if (!there && names) {
        fail(`${one._id} does not exist any more; only its metadata is left`);
      }
      collections.push({
        ns: one._id,
        location: one.location,
        gh: one.gh || "gh",
        form: one.form || "any",
        unhashed: Boolean(one.unhashed),
        state: one.state,
        stored: one,
        there,
      });
    }
    return collections;
  }

  // The same, without those that are gone; `notes` names them.
  function existing(wanted, projection, notes) {
    return adopted(wanted, projection, notes).filter((one) => {
      if (!one.there) {
        notes.push(`${one.ns} does not exist any more; only its metadata is left.`);
      }
      return one.there;
    });
  }

  // Whether the server refuses every write whose gh is wrong; as spatialnosql/metadata.py decides it.
  function isGuaranteed(one) {
    const {
      validator = {},
      validationLevel = "strict",
      validationAction = "error",
    } = one.there.options || {};
    if (validationLevel !== "strict" || validationAction !== "error") {
      return false;
    }
    const wanted = EJSON.stringify(geohash.trueGh(one));
    return [validator, ...(validator.$and || [])].some((part) => EJSON.stringify(part) === wanted);
  }

  // The index that begins with gh and holds every document, for a scan that reads no document.
  function ghIndex(one) {
    const index = collection(one.ns)
      .getIndexes()
      .find((each) => {
        const whole = !each.sparse && !each.hidden && !each.partialFilterExpression && !each.collation;
        return whole && Object.entries(each.key)[0][0] === one.gh && Object.entries(each.key)[0][1] === 1;
      });
    return index ? { hint: index.name } : {};
  }

  const NO_CONFIG =
    "This user may not read the database config (role clusterMonitor): chunks cannot be shown.";

  // How a collection is sharded: {key, uuid}; false if it is not; null where the user may not know.
  function sharding(ns, notes) {
    const entry = ifAllowed(
      () => db.getSiblingDB("config").collections.findOne({ _id: ns }),
      notes,
      NO_CONFIG,
    );
    if (entry === null) {
      return notes.includes(NO_CONFIG) ? null : false;
    }
    return entry.unsplittable ? false : { key: entry.key, uuid: entry.uuid };
  }

  function keyToText(key) {
    return (
      "{" +
      Object.entries(key)
        .map(([name, value]) => `${name}: ${value}`)
        .join(", ") +
      "}"
    );
  }

  // -- output --

  function toText(value) {
    return EJSON.stringify(text.exact(value));
  }

  function printLines(lines) {
    for (const line of lines) {
      print(line);
    }
  }

  // Print a report: as EJSON for machines, or the lines for people and the notes after them.
  function show(json, report, lines) {
    if (json) {
      print(toText(report));
      return;
    }
    printLines(lines);
    printLines(report.notes.map((note) => `Note: ${note}`));
  }

  return {
    adopted,
    checkNamespace,
    chunk,
    collection,
    deployment,
    existing,
    fail,
    found,
    geohash,
    ghIndex,
    histogram,
    ifAllowed,
    isGuaranteed,
    keyToText,
    on,
    readOptions,
    sharding,
    show,
    text,
    toText,
  };
})();
