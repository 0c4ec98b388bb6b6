import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { curveOf, fileRun, matrixOf, rangesOf } from "../fixtures/build";
import { fixtureData } from "../fixtures/generate";
import { randomOf } from "../fixtures/random";
import { readFileData } from "../src/data/file_data";
import { FileSource, thinned } from "../src/data/file_source";
import type { Range } from "../src/data/source";

describe("file source", () => {
  it("answers like a direct computation on random input", async () => {
    const random = randomOf(21);
    for (let round = 0; round < 25; round++) {
      const count = 3 + Math.floor(random() * 20), first = Math.floor(random() * 50), last = first + Math.floor(random() * 300);
      const targets = Array.from({ length: count }, (_, i) => `t.${i}`), table = new Map<string, number>();
      const record = (target: number, step: number) => {
        const key = `${target} ${step}`;
        if (!table.has(key)) table.set(key, random() < 0.3 ? NaN : random() < 0.02 ? Infinity : random() < 0.1 ? 0 : random() * 10 ** Math.floor(random() * 8 - 4));
        return table.get(key)!;
      };
      const ranges = rangesOf(targets, () => random() < 0.7), matrix = matrixOf("h", "n", ranges, first, last, 1, record, 64);
      const source = new FileSource({ runs: [fileRun({ id: "r", title: "r", targets, first, last }, [matrix], [], [])], differences: [] });
      const start = Math.floor(random() * count), rows: Range[] = [[0, count], [start, start + 1]], each = matrix.each * (1 + Math.floor(random() * 4));
      const columns = Math.ceil((last - first + 1) / each);
      for (const of of ["maximum", "mean"] as const) {
        const cells = await source.matrix({ run: "r", hook: "h", name: "n", rows, first, each, columns, of });
        rows.forEach(([from, to], row) => {
          for (let column = 0; column < columns; column++) {
            const found: number[] = [];
            for (let target = from; target < to; target++) {
              if (!ranges.some(([a, b]) => a <= target && target < b)) continue;
              for (let step = first + column * each; step < Math.min(last + 1, first + (column + 1) * each); step++) {
                const value = record(target, step);
                if (value === value) found.push(value);
              }
            }
            const cell = cells[row * columns + column]!;
            if (!found.length) expect(cell).toBeNaN();
            else if (found.includes(Infinity)) expect(cell).toBe(Infinity);
            else if (of === "maximum") {
              const most = Math.max(...found);
              expect(Math.abs(cell - most)).toBeLessThanOrEqual(most * 1e-3);
            } else expect(cell).toBeLessThanOrEqual(Math.max(...found) * 1.001);
          }
        });
      }
    }
  });

  it("repeats columns if the request is finer than the file", async () => {
    const matrix = matrixOf("h", "n", [[0, 1]], 0, 99, 1, (_, step) => 1 + Math.floor(step / 10), 10);
    const source = new FileSource({ runs: [fileRun({ id: "r", title: "r", targets: ["a"], last: 99 }, [matrix], [], [])], differences: [] });
    const cells = await source.matrix({ run: "r", hook: "h", name: "n", rows: [[0, 1]], first: 5, each: 1, columns: 10, of: "maximum" });
    expect(Array.from(cells, cell => Math.round(cell))).toEqual([1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    expect(source.stepsPerValue("r", "h", "n")).toBe(10);
    const outside = await source.matrix({ run: "r", hook: "h", name: "n", rows: [[0, 1]], first: 95, each: 10, columns: 3, of: "maximum" });
    expect(Array.from(outside, cell => cell === cell)).toEqual([true, false, false]);
  });

  it("uses stored curves for exact values, and shows them in the map", async () => {
    const curve = curveOf("training", "loss", 0, 0, 9, 1, step => step === 4 ? NaN : -step);
    const source = new FileSource({ runs: [fileRun({ id: "r", title: "r", targets: ["."], last: 9 }, [], [curve], [])], differences: [] });
    const found = await source.curve({ run: "r", hook: "training", name: "loss", target: 0, first: 2, last: 6, points: 100 });
    expect(found).toEqual({ steps: [2, 3, 4, 5, 6], low: [-2, -3, null, -5, -6], high: [-2, -3, null, -5, -6], nonfinite: [4] });
    const cells = await source.matrix({ run: "r", hook: "training", name: "loss", rows: [[0, 1]], first: 0, each: 2, columns: 5, of: "maximum" });
    expect(Array.from(cells)).toEqual([1, 3, Infinity, 7, 9]);
    const [numbers] = await source.numbers("r", 0);
    expect(numbers).toMatchObject({ count: 10, nonfinite: 1, minimum: -9, last: -9, last_step: 9 });
  });

  it("joins points and keeps their extremes", () => {
    const curve = curveOf("h", "n", 0, 0, 99, 1, step => step === 50 ? 1000 : step);
    const made = thinned(curve, 0, 99, 10);
    expect(made.steps).toHaveLength(10);
    expect(Math.max(...made.high.map(Number))).toBe(1000);
    expect(made.low[0]).toBe(0);
  });

  it("reads the data of a page and explains what is missing", async () => {
    const data = fixtureData(), text = gzipSync(JSON.stringify(data)).toString("base64");
    const source = new FileSource(readFileData(text));
    expect((await source.runs()).map(run => run.id)).toEqual(data.runs.map(run => run.id));
    await expect(source.run("nowhere")).rejects.toMatchObject({ message: expect.stringContaining("nowhere"), remedy: expect.any(String) });
    expect((await source.difference("gpt-nan", "gpt-good")).step).toBe(42);
    expect((await source.difference("tiny", "gpt-good")).sentence).toContain("no comparison");
    const histogram = await source.histogram("gpt-nan", "magnitudes", [0, 1]);
    expect(histogram.counts[0]).toHaveLength(64);
    for (const run of data.runs) for (const series of run.series) {
      const cells = await source.matrix({ run: run.id, hook: series.hook, name: series.name, rows: [[0, run.targets.length]], first: run.first, each: 1, columns: 5, of: "mean" });
      expect(cells).toHaveLength(5);
    }
  });
});
