import { describe, expect, it } from "vitest";
import { randomOf } from "../fixtures/random";
import { bounded, followed, levelFor, stepsPerCell, TILE, whole, zoomed } from "../src/model/steps";
import { type CellRequest, Tiles, WAITING } from "../src/model/tiles";

/** Values of one row by step. */
type Values = (row: string, step: number) => number;

/** Answer a request from single steps: the largest magnitude of each cell. */
function answer(request: CellRequest, values: Values, first: number, last: number): Float32Array {
  const cells = new Float32Array(request.rows.length * request.columns).fill(NaN);
  request.rows.forEach((row, number) => {
    for (let column = 0; column < request.columns; column++) {
      for (let step = request.first + column * request.each; step < request.first + (column + 1) * request.each; step++) {
        if (step < first || step > last) continue;
        const value = values(row.key, step), at = number * request.columns + column;
        if (value === value && !(value <= cells[at]!)) cells[at] = value;
      }
    }
  });
  return cells;
}

const rows = [{ key: "a", ranges: [[0, 1] as [number, number]] }, { key: "b", ranges: [[1, 2] as [number, number]] }];

describe("steps", () => {
  it("keeps the window inside the run", () => {
    expect(bounded({ from: -50, to: 10 }, 0, 99)).toEqual({ from: 0, to: 60 });
    expect(bounded({ from: 50, to: 51 }, 0, 99)).toEqual({ from: 50, to: 54 });
    expect(bounded({ from: 5, to: 6 }, 7, 7)).toEqual({ from: 7, to: 8 });
    const at = zoomed({ from: 0, to: 100 }, 25, 0.5);
    expect((25 - at.from) / (at.to - at.from)).toBeCloseTo(0.25);
  });

  it("follows the end only if it was in sight", () => {
    expect(followed({ from: 80, to: 100 }, 99, 104)).toEqual({ from: 85, to: 105 });
    expect(followed({ from: 10, to: 30 }, 99, 104)).toEqual({ from: 10, to: 30 });
  });

  it("never asks for more cells than pixels", () => {
    const random = randomOf(1);
    for (let round = 0; round < 500; round++) {
      const span = Math.ceil(random() ** 3 * 1e6) + 1, width = Math.ceil(random() * 1500) + 1, stride = Math.ceil(random() * 20);
      const level = levelFor({ from: 0, to: span }, width, stride), each = stepsPerCell(level, stride);
      expect(span / each).toBeLessThanOrEqual(width + 1e-6);
      if (level > 0) expect(span / stepsPerCell(level - 1, stride)).toBeGreaterThan(width - 1e-6);
      if (level > 0) expect(Math.log2(each) % 1).toBe(0);
    }
  });
});

describe("tiles", () => {
  it("show the same as a direct computation on random input", () => {
    const random = randomOf(77);
    for (let round = 0; round < 60; round++) {
      const first = Math.floor(random() * 1000), last = first + Math.ceil(random() * 4000), stride = random() < 0.5 ? 1 : 7;
      const values: Values = (row, step) => {
        const chance = Math.abs(Math.sin(step * 12.9898 + row.charCodeAt(0) * 78.233) * 43758.5453) % 1;
        return chance < 0.2 ? NaN : chance < 0.203 ? Infinity : Math.fround(chance);
      };
      const tiles = new Tiles(stride, last), width = 40 + Math.floor(random() * 500);
      const window = bounded({ from: first + random() * (last - first), to: first + random() * (last - first) }, first, last);
      const level = levelFor(window, width, stride), each = stepsPerCell(level, stride);
      const request = tiles.missing(rows, window, level)!;
      expect(request.columns).toBeLessThanOrEqual(Math.ceil(width / TILE + 2) * TILE);
      tiles.put(request, level, answer(request, values, first, last));
      expect(tiles.missing(rows, window, level)).toBeNull();
      const strip = new Float32Array(width);
      for (const row of rows) {
        tiles.compose(row.key, window, level, strip);
        const bad = new Set<number>(), shown = new Set<number>();
        for (let x = 0; x < width; x++) {
          const cell = Math.floor((window.from + (x + 0.5) / width * (window.to - window.from)) / each);
          const one = answer({ rows: [row], first: cell * each, each, columns: 1 }, values, first, last)[0];
          expect(strip[x]).toEqual(one);
          if (one === Infinity) shown.add(cell);
        }
        // No cell is skipped, so a single step that is not finite is always on screen.
        for (let cell = Math.ceil(window.from / each); (cell + 1) * each <= window.to; cell++) {
          if (answer({ rows: [row], first: cell * each, each, columns: 1 }, values, first, last)[0] === Infinity) bad.add(cell);
        }
        for (const cell of bad) expect(shown.has(cell)).toBe(true);
      }
    }
  });

  it("show coarser cells until finer ones arrive, and finer ones after zooming out", () => {
    const values: Values = (_, step) => step === 1234 ? Infinity : 1, tiles = new Tiles(1, 4095);
    const all = whole(0, 4095), level = levelFor(all, 256, 1);
    const request = tiles.missing(rows, all, level)!;
    tiles.put(request, level, answer(request, values, 0, 4095));
    const near = { from: 1200, to: 1300 }, strip = new Float32Array(100);
    tiles.compose("a", near, 0, strip);
    expect(Array.from(strip)).not.toContain(WAITING);
    expect(Array.from(strip)).toContain(Infinity);
    const fine = tiles.missing(rows, near, 0)!;
    tiles.put(fine, 0, answer(fine, values, 0, 4095));
    tiles.compose("a", near, 0, strip);
    expect(strip.filter(cell => cell === Infinity)).toHaveLength(1);
    expect(tiles.missing([{ key: "c", ranges: [[2, 3]] }], near, 0)!.rows).toHaveLength(1);
    tiles.compose("unknown", near, 0, strip);
    expect(strip.every(cell => cell === WAITING)).toBe(true);
  });

  it("ask again only for the end when a run grows", () => {
    const tiles = new Tiles(1, 999), window = whole(0, 999);
    const request = tiles.missing(rows, window, 0)!;
    tiles.put(request, 0, answer(request, () => 1, 0, 999));
    tiles.grow(999, 1009);
    const strip = new Float32Array(1010);
    tiles.compose("a", whole(0, 1009), 0, strip);
    expect([strip[999], strip[1000], strip[1009]]).toEqual([1, WAITING, WAITING]);
    const next = tiles.missing(rows, whole(0, 1009), 0)!;
    expect(next.first).toBe(Math.floor(999 / TILE) * TILE);
    expect(next.first + next.columns).toBe(1010);
    tiles.spoil();
    expect(tiles.missing(rows, window, 0)!.first).toBe(0);
  });
});
