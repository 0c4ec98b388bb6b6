// The end-to-end test: every page, as a phone and a desk show it, dark and light. It opens a report file of fixtures, one
// of 45,000 targets, and real runs of the Python package, from the real server and as a report.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { app, filePage, load } from "../fixtures/pages.mjs";
import { launch, open, SHOTS } from "./browser.mjs";
import { check, checkPage, failures, settled } from "./checks.mjs";
import { closeCode, exerciseCode, exerciseFlow, exercisePhone } from "./exercise.mjs";
import { exerciseLive } from "./live.mjs";
import { trained } from "./trained.mjs";

const begin = performance.now();
if (!existsSync(resolve(app, "app.js"))) throw new Error("build the page first: scripts/ui");
const { fixtureData, largeData } = await load("generate.ts");
mkdirSync(SHOTS, { recursive: true });
function written(name, data) {
  writeFileSync(resolve(SHOTS, name), filePage(data));
  return pathToFileURL(resolve(SHOTS, name)).href;
}

const fixtures = written("report.html", fixtureData()), large = written("large.html", largeData(45_000));
const real = await trained(), browser = await launch();
const REAL = ["page=overview&run=good", "page=flow&run=broken&target=4.weight&step=41", "page=flow&run=good&series=acts%2Frms&target=%3D2", "page=hooks&run=good", "page=compare&run=good&with=good&with=broken"];
const LARGE = ["page=overview&run=large", "page=flow&run=large", "page=flow&run=large&search=**.weight&target=%3Dmodel.layers.3.attn.q.weight", "page=hooks&run=large", "page=compare&with=large&with=other"];
const FIXTURES = [
  "page=overview&run=gpt-nan", "page=flow&run=gpt-nan&target=transformer.h.7.mlp&step=690", "page=hooks&run=gpt-nan", "page=compare&with=gpt-nan&with=gpt-deep&with=gpt-good",
  "page=overview&run=hostile", "page=flow&run=hostile&target=%3Cscript%3Ealert(1)%3C%2Fscript%3E.weight", "page=hooks&run=hostile", "page=compare&with=hostile&with=tiny",
  "page=overview&run=unwritten", "page=flow&run=unwritten&target=0.weight", "page=overview&run=one-step", "page=flow&run=one-step&target=weight",
  "page=overview&run=empty", "page=flow&run=empty", "page=hooks&run=empty",
];
for (const size of ["wide", "narrow"]) {
  // With CI_SLICE=1, each size and each theme is looked at once.
  const themes = !process.env.CI_SLICE ? ["light", "dark"] : size === "wide" ? ["light"] : ["dark"];
  for (const theme of themes) {
    // The same code shows a file and a server, so each look of a file is checked at one size.
    const files = size === "wide" === (theme === "light") ? [[fixtures, FIXTURES], [real.report, REAL]] : [];
    for (const [base, places] of [[real.base, REAL], [large, LARGE], ...files]) await visit(base, places, size, theme);
  }
}
for (const size of ["wide", "narrow"]) {
  const { page, context, faults } = await open(browser, size, "light", fixtures);
  await (size === "wide" ? exerciseFlow : exercisePhone)(page, fixtures);
  await checkPage(page, faults, `${size} after the exercise`);
  await context.close();
}
for (const [size, theme, base] of [["wide", "dark", real.base], ["narrow", "light", real.report]]) {
  const { page, context, faults } = await open(browser, size, theme, base);
  await exerciseCode(page, base);
  await checkPage(page, faults, `${size} with the page about a code`);
  await page.screenshot({ path: resolve(SHOTS, `${size}-${theme}-code.png`) });
  await closeCode(page);
  await context.close();
}
const { page, faults } = await open(browser, "wide", "light", real.base);
await exerciseLive(page, real);
// The browser itself reports requests that a lost server does not answer.
for (const fault of faults) check(/Failed to load|ERR_CONNECTION|ERR_INCOMPLETE/.test(fault), `live: ${fault}`);
await browser.close();
console.log(`${failures.length ? `${failures.length} failed` : "all checks passed"} in ${((performance.now() - begin) / 1000).toFixed(1)} s`);
process.exit(failures.length ? 1 : 0);

/** Open pages one after the other, check each, and keep its picture. */
async function visit(base, places, size, theme) {
  const { page, context, faults } = await open(browser, size, theme, base);
  const origin = base === large ? "large" : base === fixtures ? "fixtures" : base === real.base ? "server" : "report";
  for (const [number, place] of places.entries()) {
    const name = `${size} ${theme} ${origin} ${place.slice(0, 44)}`;
    try {
      if (!number) await page.goto(`${base}#${place}`);
      else await page.evaluate(next => { location.hash = next; }, place);
      await page.waitForSelector("main h1, main [role=treeitem], main [role=option], main .card");
      await settled(page);
      await checkPage(page, faults, name);
    } catch (error) {
      check(false, `${name}: ${error.message}`);
    }
    await page.screenshot({ path: resolve(SHOTS, `${name.replace(/\W+/g, "-")}.png`) });
  }
  await context.close();
}
