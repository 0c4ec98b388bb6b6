import { describe, expect, it } from "vitest";
import { formatState, isNewPlace, readState, START, type State, toggled } from "../src/model/state";

describe("state", () => {
  const full: State = {
    page: "flow", run: "a b/#&=%", runs: ["x,y", "z"], series: "grads/abs_max", steps: [3.5, 200], inside: "blocks.1", open: ["a.b", "c, d"], shut: ["<e>"],
    target: "=مرحبا.وزن 🙂", step: 2 ** 33, search: "** !**.bias", scale: "linear", range: [1e-9, 1], of: "mean", curve: "linear",
  };

  it("comes back from the address as it was", () => {
    expect(readState(formatState(full))).toEqual(full);
    expect(readState(formatState(START))).toEqual(START);
    expect(readState("")).toEqual(START);
  });

  it("ignores what makes no sense", () => {
    expect(readState("#page=admin&steps=9~1&range=5~5&step=x&scale=cubic&of=&steps")).toEqual(START);
    expect(readState("#range=1~2~3").range).toBeNull();
    expect(readState("#%E0%A4%A")).toMatchObject({ page: "overview" });
  });

  it("makes a new place to go back to for a page, but not for a zoom", () => {
    expect(isNewPlace(START, { ...START, page: "flow" })).toBe(true);
    expect(isNewPlace(START, { ...START, steps: [1, 2], search: "x", open: ["a"], step: 4 })).toBe(false);
  });

  it("stores only what differs from how the tree opens", () => {
    expect(toggled(START, "a", true, false)).toEqual({ open: ["a"], shut: [] });
    expect(toggled(START, "a", false, true)).toEqual({ open: [], shut: ["a"] });
    expect(toggled({ ...START, open: ["a"] }, "a", false, false)).toEqual({ open: [], shut: [] });
    expect(toggled({ ...START, shut: ["a"] }, "a", true, true)).toEqual({ open: [], shut: [] });
  });
});
