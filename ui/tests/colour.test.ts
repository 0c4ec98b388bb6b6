import { describe, expect, it } from "vitest";
import { colour, css, divergingDark, divergingLight, painter, position, rangeOf, roundStep, ticksOf, viridis } from "../src/model/colour";
import { brief, cellText, tick } from "../src/model/numbers";

const colours = { zero: colour("#010203"), nothing: colour("#040506"), waiting: colour("#070809"), bad: colour("#ff0000") };

describe("colours", () => {
  it("keeps cells that are no numbers apart", () => {
    const paint = painter([1e-3, 10], "log", viridis, colours);
    expect(css(paint(NaN))).toBe("rgb(4 5 6)");
    expect(css(paint(Infinity))).toBe("rgb(255 0 0)");
    expect(css(paint(-Infinity))).toBe("rgb(7 8 9)");
    expect(css(paint(0))).toBe("rgb(1 2 3)");
    expect(paint(1e-9)).toBe(viridis[0]);
    expect(paint(1e9)).toBe(viridis[255]);
    expect(new Set([...viridis, colours.zero, colours.nothing, colours.bad]).size).toBeGreaterThan(250);
  });

  it("has an order that is visible without hue", () => {
    const light = (value: number) => 0.2126 * (value & 255) + 0.7152 * (value >> 8 & 255) + 0.0722 * (value >> 16 & 255);
    for (let i = 1; i < 256; i++) expect(light(viridis[i]!)).toBeGreaterThanOrEqual(light(viridis[i - 1]!) - 0.6);
    for (const palette of [divergingLight, divergingDark]) {
      const ends = [light(palette[0]!), light(palette[127]!), light(palette[255]!)];
      expect(Math.abs(ends[0]! - ends[1]!)).toBeGreaterThan(60);
      expect(Math.abs(ends[2]! - ends[1]!)).toBeGreaterThan(60);
    }
  });

  it("puts the middle of a ratio at zero", () => {
    const [low, high] = rangeOf(Float32Array.of(-3.2, 0.1, 1, NaN, Infinity), "ratio");
    expect(low).toBe(-high);
    expect(position(0, [low, high], "ratio")).toBe(0.5);
    expect(painter([low, high], "ratio", divergingLight, colours)(0)).toBe(divergingLight[128]);
  });

  it("chooses round ends and does not follow rare extremes", () => {
    const cells = Float32Array.from({ length: 1000 }, (_, i) => i === 0 ? 1e-30 : 0.002 + i / 2000);
    expect(rangeOf(cells, "log")).toEqual([0.001, 1]);
    expect(rangeOf(cells, "linear")[0]).toBe(0);
    expect(rangeOf(Float32Array.of(NaN, Infinity, 0), "log")).toEqual([0.1, 1]);
    expect(rangeOf(Float32Array.of(5), "log")).toEqual([1, 10]);
    expect(position(0.01, [0.001, 1], "log")).toBeCloseTo(1 / 3);
  });

  it("writes ticks and numbers briefly", () => {
    expect(ticksOf([1e-6, 1], "log", 4)).toEqual([1e-6, 1e-4, 0.01, 1]);
    expect(ticksOf([0, 10], "linear", 6)).toEqual([0, 2, 4, 6, 8, 10]);
    expect(roundStep(0.3)).toBe(0.5);
    expect([brief(0.000123456), brief(12345), brief(-0.5), brief(null), brief(1e-30), brief(0), brief(1e22)]).toEqual(["1.23e-4", "12300", "−0.5", "–", "1e-30", "0", "1e22"]);
    expect([tick(0.001), tick(100000), tick(1e-9), tick(2e8)]).toEqual(["0.001", "100,000", "1e-9", "2e8"]);
    expect(cellText(Infinity)).toBe("not finite");
  });
});
