// Make one sharded cluster of the servers of docker-compose.yml. Run it again at any time: what is already
// done is left alone. `mongosh --nodb --quiet --file docker/init-cluster.js`, hosts from the environment:
//   CONFIG=configRepl/config:27017  SHARDS=shard1/shard1:27017,...  MONGOS=mongos:27017
"use strict";

const TIMEOUT_MS = 120000;
const ALREADY_INITIALIZED = 23;
const config = process.env.CONFIG ?? "configRepl/config:27017";
const shards = (process.env.SHARDS ?? "shard1/shard1:27017,shard2/shard2:27017,shard3/shard3:27017").split(",");
const mongos = process.env.MONGOS ?? "mongos:27017";

// Call until it returns something true; a server that is still starting refuses, and that is no failure yet.
function until(what, attempt) {
  const deadline = Date.now() + TIMEOUT_MS;
  let last = "not yet";
  while (Date.now() < deadline) {
    try {
      const result = attempt();
      if (result) {
        return result;
      }
    } catch (error) {
      last = error.message;
    }
    sleep(500);
  }
  throw new Error(`${what}: ${last} after ${TIMEOUT_MS / 1000} s`);
}

function connect_to(host, options) {
  return until(`connect to ${host}`, () =>
    new Mongo(`mongodb://${host}/?serverSelectionTimeoutMS=2000${options}`).getDB("admin"));
}

// A replica set of one member, known to the others by the name it has in the network of the containers.
function initiate(set, configsvr) {
  const [name, host] = set.split("/");
  const admin = connect_to(host, "&directConnection=true");
  if (admin.hello().setName === undefined) {
    try {
      admin.runCommand({ replSetInitiate: { _id: name, configsvr, members: [{ _id: 0, host }] } });
      print(`${name}: initiated`);
    } catch (error) {
      if (error.code !== ALREADY_INITIALIZED) {
        throw error;
      }
    }
  }
  until(`primary of ${name}`, () => admin.hello().isWritablePrimary);
}

initiate(config, true);
shards.forEach((set) => initiate(set, false));

const router = connect_to(mongos, "");
until(`${mongos} to find the config servers`, () => router.runCommand({ ping: 1 }).ok);
const known = new Set(router.runCommand({ listShards: 1 }).shards.map((shard) => shard._id));
for (const set of shards) {
  const name = set.split("/")[0];
  if (!known.has(name)) {
    until(`add ${name}`, () => router.runCommand({ addShard: set, name }).ok);
    print(`${name}: added`);
  }
}
print(`ready: ${router.runCommand({ listShards: 1 }).shards.length} shards`);
