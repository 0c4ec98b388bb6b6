import { describe, expect, it } from "vitest";
import { randomOf } from "../fixtures/random";
import { glob, readSelector } from "../src/model/selector";

const targets = [".", "head.weight", "head.bias", "blocks.0", "blocks.0.mlp", "blocks.0.mlp.weight", "blocks.1", "blocks.1:probs", "blocks.1.attn.qkv.weight"];
const types = { ".": "Net", head: "Linear", "blocks.0": "Block", "blocks.0.mlp": "Linear", "blocks.1": "Block", "blocks.1.attn": "Attention", "blocks.1.attn.qkv": "LinearNorm" };
const select = (text: string) => {
  const test = readSelector(text, types, name => targets.includes(name));
  return test ? targets.filter(test) : null;
};

describe("selector", () => {
  it.each([
    ["head.weight", ["head.weight"]],
    ["blocks.*", ["blocks.0", "blocks.1"]],
    ["blocks.*:probs", ["blocks.1:probs"]],
    ["**.weight", ["head.weight", "blocks.0.mlp.weight", "blocks.1.attn.qkv.weight"]],
    ["*.weight", ["head.weight"]],
    ["blocks.0.**", ["blocks.0.mlp", "blocks.0.mlp.weight"]],
    ["**", targets.slice(1)],
    [".", ["."]],
    ["type:Linear", ["head.weight", "head.bias", "blocks.0.mlp", "blocks.0.mlp.weight"]],
    ["type:Lin*", ["head.weight", "head.bias", "blocks.0.mlp", "blocks.0.mlp.weight", "blocks.1.attn.qkv.weight"]],
    ["** !**.bias", targets.filter(name => name !== "." && !name.endsWith("bias"))],
    ["!**.bias", targets.filter(name => name !== "." && !name.endsWith("bias"))],
    ["head.bias, blocks.1", ["head.bias", "blocks.1"]],
    ["QKV", ["blocks.1.attn.qkv.weight"]],
    ["nothing", []],
    ["[a-z]+", []],
    ["bl*.0", ["blocks.0"]],
    ["**qkv**", ["blocks.1.attn.qkv.weight"]],
  ])("%s", (text, wanted) => expect(select(text)).toEqual(wanted));

  it("selects everything if it is empty", () => {
    expect(select("  , ")).toBeNull();
    expect(select("!")).toBeNull();
  });

  it("agrees with a slow matcher on random globs", () => {
    const random = randomOf(11), pick = (from: string[]) => from[Math.floor(random() * from.length)]!;
    for (let round = 0; round < 3000; round++) {
      const pattern = Array.from({ length: 1 + Math.floor(random() * 4) }, () => pick(["a", "b", "*", "**", "a*", "ab"])).join(".");
      const name = Array.from({ length: 1 + Math.floor(random() * 4) }, () => pick(["a", "b", "ab", "ba"])).join(".");
      expect([pattern, name, glob(pattern).test(name)]).toEqual([pattern, name, slow(pattern.split("."), name.split("."))]);
    }
  });

  it("does not take long for many stars", () => {
    const begin = process.cpuUsage();
    glob("**.".repeat(30) + "x").test("a.".repeat(80) + "y");
    expect(process.cpuUsage(begin).user / 1000).toBeLessThan(200);
  });
});

/** Match part by part. `**` before a part is any number of parts, and at the end it is at least one. */
function slow(pattern: string[], name: string[]): boolean {
  if (!pattern.length) return !name.length;
  if (pattern[0] === "**") {
    if (pattern.length === 1) return name.length > 0;
    return Array.from({ length: name.length + 1 }, (_, skip) => skip).some(skip => slow(pattern.slice(1), name.slice(skip)));
  }
  return name.length > 0 && new RegExp(`^${pattern[0]!.replace("*", "\\w*")}$`).test(name[0]!) && slow(pattern.slice(1), name.slice(1));
}
