// Geohash for the scripts: cells, strings and boxes, and the expression by which the server computes `gh` itself.
// Pure: no server. The same as spatialnosql/geohash.py, expression.py and info.py, and tested to be the same.
//
// A cell of `bits` bits is a BigInt: the bits of longitude and latitude interleaved, longitude first. Documents carry
// cells of 60 bits as 12 characters. A range [lo, hi) of them is half-open.
"use strict";

const ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz";
const BITS = 60;
const LENGTH = 12;
const END_OF_CELLS = 1n << 60n;
const END_OF_STRINGS = "{"; // sorts after every geohash
const PLAIN_CRS = ["urn:ogc:def:crs:OGC:1.3:CRS84", "EPSG:4326"];
const GEOJSON_TYPES = [
  "Point",
  "MultiPoint",
  "LineString",
  "MultiLineString",
  "Polygon",
  "MultiPolygon",
  "GeometryCollection",
];

// -- strings and cells -------------------------------------------------------------------------------------

// The first 60-bit cell whose 12 characters do not sort before a string: what the string means as a bound of a range.
function stringToBound(text) {
  let cell = 0n;
  for (let place = 0; place < LENGTH; place++) {
    const left = BigInt(5 * (LENGTH - place)); // bits that are still to come
    if (place >= text.length) {
      return cell << left;
    }
    const value = ALPHABET.indexOf(text[place]);
    if (value >= 0) {
      cell = (cell << 5n) | BigInt(value);
      continue;
    }
    // No geohash has this character: the bound is the next that one could have, or the end of what came before.
    const next = [...ALPHABET].findIndex((character) => character > text[place]);
    return next < 0 ? (cell + 1n) << left : ((cell << 5n) | BigInt(next)) << (left - 5n);
  }
  return text.length > LENGTH ? cell + 1n : cell;
}

// The shortest string that sorts among 12-character geohashes as a 60-bit bound does.
function boundToString(cell) {
  if (cell >= END_OF_CELLS) {
    return END_OF_STRINGS;
  }
  let text = "";
  for (let shift = BigInt(BITS - 5); shift >= 0n; shift -= 5n) {
    text += ALPHABET[Number((cell >> shift) & 31n)];
  }
  return text.replace(/0+$/, "");
}

// The range of 60-bit cells that a cell of `bits` bits is.
function cellToRange(cell, bits) {
  const shift = BigInt(BITS - bits);
  return [cell << shift, (cell + 1n) << shift];
}

// -- boxes -------------------------------------------------------------------------------------------------

// The box [west, south, east, north] of a cell. Every number here is an exact double.
function cellToBox(cell, bits) {
  let x = 0;
  let y = 0;
  for (let bit = bits - 1; bit >= 0; bit--) {
    const value = Number((cell >> BigInt(bit)) & 1n);
    if ((bits - 1 - bit) % 2 === 0) {
      x = 2 * x + value;
    } else {
      y = 2 * y + value;
    }
  }
  const width = 360 / 2 ** Math.ceil(bits / 2);
  const height = 180 / 2 ** Math.floor(bits / 2);
  return [-180 + x * width, -90 + y * height, -180 + (x + 1) * width, -90 + (y + 1) * height];
}

// The smallest box that holds all cells of a range, or null if the range is empty.
function rangeToBox(lo, hi) {
  let box = null;
  // Piece by piece, each the largest cell that begins here and does not reach beyond: at most 120 of them.
  for (let at = lo; at < hi;) {
    let free = 0;
    while (free < BITS && (at >> BigInt(free)) % 2n === 0n && at + (1n << BigInt(free + 1)) <= hi) {
      free++;
    }
    const [west, south, east, north] = cellToBox(at >> BigInt(free), BITS - free);
    box = box
      ? [Math.min(box[0], west), Math.min(box[1], south), Math.max(box[2], east), Math.max(box[3], north)]
      : [west, south, east, north];
    at += 1n << BigInt(free);
  }
  return box;
}

// -- what the server computes ------------------------------------------------------------------------------

// The 12-character geohash of the point in a field, or null where there is no valid point (expression.py).
function geohashExpression(location, form) {
  const point = { lng: coordinate(0), lat: coordinate(1) };
  const index = {
    x: axisIndex("$$lng", -180, 360 / 2 ** 30),
    y: axisIndex("$$lat", -90, 180 / 2 ** 30),
  };
  const hash = {
    $cond: [
      { $and: [within("$$lng", 180), within("$$lat", 90)] },
      { $let: { vars: index, in: characters() } },
      null,
    ],
  };
  return { $let: { vars: { pair: pair("$" + location, form) }, in: { $let: { vars: point, in: hash } } } };
}

function pair(path, form) {
  const crs = `${path}.crs`;
  const known = { $in: [`${crs}.properties.name`, PLAIN_CRS] };
  const plain = { $or: [{ $eq: [{ $type: crs }, "missing"] }, { $and: [{ $eq: [`${crs}.type`, "name"] }, known] }] };
  const geojson = {
    case: { $eq: [`${path}.type`, "Point"] },
    then: { $cond: [plain, `${path}.coordinates`, null] },
  };
  const kindsInside = { $map: { input: path, in: { $type: "$$this" } } };
  const single = { $eq: [{ $setIntersection: [kindsInside, ["array", "object"]] }, []] };
  const array = { case: { $isArray: [path] }, then: { $cond: [single, path, null] } };
  const members = { $map: { input: { $objectToArray: path }, in: "$$this.v" } };
  const document = {
    case: { $eq: [{ $type: path }, "object"] },
    then: { $cond: [{ $in: [`${path}.type`, GEOJSON_TYPES] }, null, members] },
  };
  const parents = path.split(".").slice(0, -1);
  const several = parents.map((_, n) => ({
    case: { $isArray: [parents.slice(0, n + 1).join(".")] },
    then: null,
  }));
  const kinds = { geojson: [geojson], legacy: [array, document], any: [array, geojson, document] };
  const found = { $switch: { branches: [...several, ...kinds[form]], default: null } };
  return { $let: { vars: { it: found }, in: { $cond: [{ $isArray: ["$$it"] }, "$$it", []] } } };
}

function coordinate(position) {
  const tiny = { $cond: [{ $lt: [{ $abs: "$$it" }, 1] }, 0, null] };
  const conversion = { input: "$$it", to: "double", onError: tiny };
  return {
    $let: {
      vars: { it: { $arrayElemAt: ["$$pair", position] } },
      in: { $cond: [{ $isNumber: "$$it" }, { $convert: conversion }, null] },
    },
  };
}

function within(value, limit) {
  return { $and: [{ $gte: [value, -limit] }, { $lte: [value, limit] }] };
}

function axisIndex(value, origin, step) {
  const guess = { $floor: { $multiply: [{ $subtract: [value, origin] }, 1 / step] } };
  const border = { $add: [{ $multiply: ["$$guess", step] }, origin] };
  const corrected = {
    $add: [
      "$$guess",
      { $cond: [{ $lt: [value, "$$border"] }, -1, 0] },
      { $cond: [{ $gte: [value, { $add: ["$$border", step] }] }, 1, 0] },
    ],
  };
  const whole = { $toInt: { $min: [corrected, 2 ** 30 - 1] } };
  return { $let: { vars: { guess }, in: { $let: { vars: { border }, in: whole } } } };
}

function characters() {
  const parts = [];
  for (let group = 0; group < 6; group++) {
    const shift = 2 ** (25 - 5 * group);
    const [x, y] = ["$$x", "$$y"].map((axis) => ({ $mod: [{ $trunc: { $divide: [axis, shift] } }, 32] }));
    const place = { $add: [{ $multiply: [x, 32] }, y] };
    parts.push({ $arrayElemAt: ["$$table", { $toInt: place }] });
  }
  return { $let: { vars: { table: { $literal: pairTable() } }, in: { $concat: parts } } };
}

function pairTable() {
  const table = [];
  for (let place = 0; place < 1024; place++) {
    let code = 0;
    for (let bit = 4; bit >= 0; bit--) {
      code = 4 * code + 2 * ((place >> (5 + bit)) & 1) + ((place >> bit) & 1);
    }
    table.push(ALPHABET[code >> 5] + ALPHABET[code & 31]);
  }
  return table;
}

// The filter that documents with a true `gh` pass: the validator's clause (info.py).
function trueGh({ location, gh, form, unhashed }) {
  const computed = geohashExpression(location, form);
  const given = { $ifNull: ["$" + gh, null] };
  if (unhashed) {
    return { $expr: { $eq: [given, computed] } };
  }
  const nowhere = { $eq: [{ $ifNull: ["$" + location, null] }, null] };
  const right = { $and: [{ $eq: [given, "$$hash"] }, { $or: [{ $ne: ["$$hash", null] }, nowhere] }] };
  return { $expr: { $let: { vars: { hash: computed }, in: right } } };
}

const FINE = "fine";

// What is the matter with a document, in words; "fine" exactly where it passes trueGh (verify.py).
function reasonExpression({ location, gh, form, unhashed }) {
  const given = { $ifNull: ["$" + gh, null] };
  const isPoint = { $ne: ["$$hash", null] };
  const isNowhere = { $eq: [{ $ifNull: ["$" + location, null] }, null] };
  const allowed = unhashed ? { $literal: true } : { $or: [isPoint, isNowhere] };
  const branches = [
    { case: { $and: [{ $eq: [given, "$$hash"] }, allowed] }, then: FINE },
    { case: isNowhere, then: "gh without a location" },
    { case: { $not: [isPoint] }, then: unhashed ? "gh is wrong" : "the location is no point" },
    { case: { $eq: [given, null] }, then: "gh is missing" },
  ];
  const reason = { $switch: { branches, default: "gh is wrong" } };
  return { $let: { vars: { hash: geohashExpression(location, form) }, in: reason } };
}

// The lower end of the cell of `bits` bits that a document lies in, as the characters of its `gh` that matter.
function cellExpression(gh, bits) {
  const length = Math.ceil(bits / 5);
  const dropped = 5 * length - bits;
  if (!dropped) {
    return { $substrCP: ["$" + gh, 0, length] };
  }
  const rounded = [...ALPHABET].map((_, value) => ALPHABET[(value >> dropped) << dropped]).join("");
  const last = { $max: [0, { $indexOfCP: [ALPHABET, { $substrCP: ["$" + gh, length - 1, 1] }] }] };
  return { $concat: [{ $substrCP: ["$" + gh, 0, length - 1] }, { $substrCP: [rounded, last, 1] }] };
}

module.exports = {
  ALPHABET,
  BITS,
  END_OF_CELLS,
  FINE,
  boundToString,
  cellExpression,
  cellToBox,
  cellToRange,
  geohashExpression,
  rangeToBox,
  reasonExpression,
  stringToBound,
  trueGh,
};
