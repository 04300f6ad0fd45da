// The histogram of cells in a collection's metadata: how many points lie where, as of the last `spatialnosql analyze`.
// Pure: no server.
"use strict";

const { BITS } = require("./geohash.js");

// The stored document with its cells as BigInts, ascending, and their counts; null if there is none.
function fromDocument(stored) {
  if (!stored) {
    return null;
  }
  const cells = [];
  const counts = [];
  const [cellBytes, countBytes] = [bytes(stored.cells), bytes(stored.counts)];
  for (let at = 0; at + 8 <= cellBytes.length; at += 8) {
    cells.push(cellBytes.readBigUInt64LE(at));
    counts.push(Number(countBytes.readBigInt64LE(at)));
  }
  const total = counts.reduce((sum, count) => sum + count, 0);
  return { bits: Number(stored.bits), cells, counts, total, at: stored.at };
}

function bytes(binary) {
  return Buffer.from(binary.buffer.subarray(0, binary.position));
}

// The same points by larger cells.
function coarsened(histogram, bits) {
  const shift = BigInt(histogram.bits - bits);
  const cells = [];
  const counts = [];
  histogram.cells.forEach((cell, place) => {
    const parent = cell >> shift;
    if (!cells.length || cells[cells.length - 1] !== parent) {
      cells.push(parent);
      counts.push(0);
    }
    counts[counts.length - 1] += histogram.counts[place];
  });
  return { ...histogram, bits, cells, counts };
}

// The heaviest cells, with their counts, heaviest first.
function heaviest(histogram, number) {
  return histogram.cells
    .map((cell, place) => ({ cell, documents: histogram.counts[place] }))
    .sort((a, b) => b.documents - a.documents || (a.cell < b.cell ? -1 : 1))
    .slice(0, number);
}

// A function that gives the expected number of points before a 60-bit bound; within a cell they are spread evenly.
function pointsBefore(histogram) {
  const sums = [0];
  for (const count of histogram.counts) {
    sums.push(sums[sums.length - 1] + count);
  }
  const shift = BigInt(BITS - histogram.bits);
  return (bound) => {
    const cell = bound >> shift;
    let low = 0;
    let high = histogram.cells.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (histogram.cells[middle] < cell) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const within = histogram.cells[low] === cell ? Number(bound - (cell << shift)) / 2 ** Number(shift) : 0;
    return sums[low] + within * (histogram.counts[low] || 0);
  };
}

module.exports = { coarsened, fromDocument, heaviest, pointsBefore };
