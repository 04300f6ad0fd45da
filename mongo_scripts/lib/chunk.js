// Chunks of a collection that is sharded by {gh: 1, _id: 1}: what their bounds mean on the curve. Pure: no server.
"use strict";

const { ALPHABET, END_OF_CELLS, stringToBound } = require("./geohash.js");

const BEFORE_STRINGS = ["MinKey", "Int32", "Long", "Double", "Decimal128"];

// The first 60-bit cell that does not lie before a value of `gh`, in the server's order of types.
function valueToBound(value) {
  if (typeof value === "string") {
    return stringToBound(value);
  }
  const isBefore =
    value === null ||
    value === undefined ||
    typeof value === "number" ||
    BEFORE_STRINGS.includes(value._bsontype);
  return isBefore ? 0n : END_OF_CELLS;
}

function isWholeGeohash(text) {
  return (
    typeof text === "string" &&
    text.length === 12 &&
    [...text].every((character) => ALPHABET.includes(character))
  );
}

// The cells [lo, hi) that documents of a chunk may lie in.
function chunkToRange(chunk, gh) {
  const lo = valueToBound(chunk.min[gh]);
  let hi = valueToBound(chunk.max[gh]);
  // A place that is cut by _id lies in the chunks on both sides of the cut.
  const isInside = Object.entries(chunk.max).some(([name, value]) => name !== gh && !isLowest(value));
  if (isInside && isWholeGeohash(chunk.max[gh])) {
    hi += 1n;
  }
  return [lo, hi];
}

function isLowest(value) {
  return Boolean(value) && value._bsontype === "MinKey";
}

function isHighest(value) {
  return Boolean(value) && value._bsontype === "MaxKey";
}

// One bound of a chunk for people: the geohash, and the _id where a place is cut.
function boundToText(key, gh, show) {
  const rest = Object.entries(key).filter(
    ([name, value]) => name !== gh && !isLowest(value) && !isHighest(value),
  );
  const value = key[gh];
  const first = isLowest(value)
    ? "(start)"
    : isHighest(value)
      ? "(end)"
      : typeof value === "string"
        ? value
        : show(value);
  return [first, ...rest.map(([name, other]) => `${name} ${show(other)}`)].join(", ");
}

// The names of the shards whose chunks meet a range of cells, in their order. `spans` is [[lo, hi, shard], ...].
function shardsOfRange(spans, lo, hi) {
  return [...new Set(spans.filter((span) => span[0] < hi && lo < span[1]).map((span) => span[2]))];
}

module.exports = { boundToText, chunkToRange, shardsOfRange, valueToBound };
