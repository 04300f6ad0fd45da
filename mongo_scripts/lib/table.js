// Text for people: numbers, shares, aligned tables. Pure: no server.
"use strict";

const NONE = "-";

function number(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en-US");
}

function share(value) {
  return value === null || value === undefined ? NONE : (100 * value).toFixed(value < 0.01 ? 2 : 1) + " %";
}

function fixed(value, digits) {
  return value === null || value === undefined ? NONE : value.toFixed(digits);
}

// A box as people write it: west south .. east north, as many digits as its size deserves.
function box(bounds) {
  if (!bounds) {
    return NONE;
  }
  const [west, south, east, north] = bounds;
  const size = Math.min(east - west, north - south);
  const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(size)) + 2));
  const text = (value) => value.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1");
  return `${text(west)} ${text(south)} .. ${text(east)} ${text(north)}`;
}

// How long ago something was, in words.
function age(date, now) {
  if (!date) {
    return "never";
  }
  const seconds = Math.max(0, (now - date) / 1000);
  for (const [size, unit] of [
    [86400, "day"],
    [3600, "hour"],
    [60, "minute"],
  ]) {
    const count = Math.floor(seconds / size);
    if (count) {
      return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
    }
  }
  return "just now";
}

// Lines of a table. Each column is a name, or "name>" for one whose values are aligned to the right.
function table(columns, rows) {
  const names = columns.map((column) => column.replace(/>$/, ""));
  const cells = [
    names,
    ...rows.map((row) => row.map((value) => (value === null || value === undefined ? NONE : String(value)))),
  ];
  const widths = names.map((_, place) => Math.max(...cells.map((row) => row[place].length)));
  const lines = cells.map((row) =>
    row
      .map((text, place) =>
        columns[place].endsWith(">") ? text.padStart(widths[place]) : text.padEnd(widths[place]),
      )
      .join("  ")
      .trimEnd(),
  );
  lines.splice(1, 0, widths.map((width) => "-".repeat(width)).join("  "));
  return lines.map((line) => "  " + line);
}

// A value with its long integers as EJSON writes them in full: in relaxed EJSON those beyond 2^53 would be rounded.
function exact(value) {
  if (Array.isArray(value)) {
    return value.map(exact);
  }
  if (value && value._bsontype === "Long") {
    return Number.isSafeInteger(Number(value)) ? Number(value) : { $numberLong: value.toString() };
  }
  // Dates, binary data and the other types of BSON stay what they are.
  if (Object.prototype.toString.call(value) !== "[object Object]" || value._bsontype) {
    return value;
  }
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, exact(one)]));
}

module.exports = { age, box, exact, fixed, number, share, table };
