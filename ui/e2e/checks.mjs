import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What failed so far. */
export const failures = [];

export function check(holds, what) {
  if (!holds) {
    failures.push(what);
    console.log(`✗ ${what}`);
  }
}

/** Check what holds for every page: no errors, no foreign requests, no horizontal scrolling, nothing serious for axe. */
export async function checkPage(page, faults, name) {
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  check(wide[0] <= wide[1], `${name}: the page is ${wide[0]} px wide in a window of ${wide[1]} px`);
  // The code is evaluated by the debugger, so that the page's own policy stays as strict as it is.
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .filter(one => one.impact === "serious" || one.impact === "critical")
    .map(one => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map(node => `${node.target.join(" ")} ${node.any[0]?.message ?? ""}`).join(" | ")}`));
  for (const one of found) check(false, `${name}: axe ${one}`);
  for (const fault of faults.splice(0)) check(false, `${name}: ${fault}`);
}

/** Wait until a condition holds in the page. */
export async function eventually(page, what, holds, argument, timeout = 20_000) {
  try {
    await page.waitForFunction(holds, argument, { timeout, polling: 30 });
    return true;
  } catch {
    check(false, `${what}: did not happen in ${timeout} ms`);
    return false;
  }
}

/** Wait until the map shows cells and nothing is loading. */
export async function settled(page, timeout = 60_000) {
  await eventually(page, "the page has settled", () => !document.querySelector(".loading, .busy"), undefined, timeout);
  await page.waitForTimeout(120);
}

/** Return the colours in the middle of the map's rows, to see whether it changed. */
export function mapPrint(page) {
  return page.evaluate(() => {
    const canvas = document.querySelector(".map-cells canvas"), { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    let sum = 0;
    for (let i = 0; i < data.length; i += 97) sum = (sum * 31 + data[i]) % 1000000007;
    return sum;
  });
}
