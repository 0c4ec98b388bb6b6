// The end-to-end test: npm run build && npm run e2e. With BASE=http://… it only visits the pages of that server.
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { serve } from "../fixtures/serve.mjs";
import { app, filePage, load } from "../fixtures/pages.mjs";
import { launch, open, SHOTS } from "./browser.mjs";
import { check, checkPage, eventually, failures, settled } from "./checks.mjs";
import { exerciseFlow, exerciseLive } from "./exercise.mjs";

const begin = performance.now();
const outside = process.env.BASE;
if (!existsSync(resolve(app, "app.js"))) throw new Error("build the page first: npm run build");

const out = resolve(import.meta.dirname, "../fixtures/out");
mkdirSync(out, { recursive: true });
if (!outside) writeFileSync(resolve(out, "report.html"), filePage((await load("generate.ts")).fixtureData()));
const file = pathToFileURL(resolve(out, "report.html")).href;
const server = outside ? null : await serve();
const places = outside ? ["page=overview", "page=flow", "page=hooks", "page=compare"] : [
  "page=overview&run=gpt-nan", "page=flow&run=gpt-nan&target=transformer.h.7.mlp&step=690&search=", "page=flow&run=gpt-nan&search=**.weight&target=%3Dlm_head.weight", "page=hooks&run=gpt-nan",
  "page=compare&with=gpt-nan&with=gpt-deep&with=gpt-good", "page=overview&run=hostile", "page=flow&run=hostile&target=%3Cscript%3Ealert(1)%3C%2Fscript%3E.weight", "page=hooks&run=hostile",
  "page=compare&with=hostile&with=tiny", "page=overview&run=one-step", "page=flow&run=one-step&target=weight", "page=overview&run=empty", "page=flow&run=empty", "page=hooks&run=empty",
];

const browser = await launch();
for (const size of ["wide", "narrow"]) {
  for (const theme of ["light", "dark"]) {
    // One delivery for each look: all four looks with the file would take too long for the same code.
    const base = outside ?? (size === "wide" === (theme === "light") ? file : server.base);
    const { page, context, faults } = await open(browser, size, theme, base.replace(/[^/]*$/, ""));
    let first = true;
    // Odd runs look the same in each theme, so two looks are enough for them.
    const odd = size === "wide" === (theme === "light");
    for (const place of places.filter(one => odd || !/hostile|one-step|empty/.test(one))) {
      if (first) await page.goto(`${base}#${place}`);
      else await page.evaluate(next => { location.hash = next; }, place);
      first = false;
      await page.waitForSelector("main h1, main [role=treeitem], main [role=option], main .card");
      await settled(page);
      const name = `${size} ${theme} ${place.slice(0, 44)}`;
      await checkPage(page, faults, name);
      await page.screenshot({ path: resolve(SHOTS, `${name.replace(/\W+/g, "-")}.png`) });
    }
    if (outside && size === "wide") await visit(page, faults, base);
    await context.close();
  }
}

if (!outside) {
  for (const size of ["wide", "narrow"]) {
    const { page, context, faults } = await open(browser, size, "light", file.replace(/[^/]*$/, ""));
    if (size === "wide") await exerciseFlow(page, file);
    else await tap(page);
    await checkPage(page, faults, `${size} after the exercise`);
    await context.close();
  }
  await server.close();
  const growing = await serve();
  const { page, context, faults } = await open(browser, "wide", "light", growing.base);
  await page.emulateMedia({ reducedMotion: "reduce" });
  await exerciseLive(page, growing.base, growing.close);
  for (const fault of faults) check(/Failed to load|ERR_CONNECTION|ERR_INCOMPLETE/.test(fault), `live: ${fault}`);
  await context.close();
}
await browser.close();
console.log(`${failures.length ? `${failures.length} failed` : "all checks passed"} in ${((performance.now() - begin) / 1000).toFixed(1)} s`);
process.exit(failures.length ? 1 : 0);

/** Select a row with a finger, and switch the theme. */
async function tap(page) {
  await page.goto(`${file}#page=flow&run=gpt-nan`);
  await page.waitForSelector('[role="treeitem"]');
  await page.locator('[role="treeitem"]').nth(2).tap();
  await page.waitForSelector(".details .curve-plot canvas");
  const curve = await page.locator(".details .curve-plot").boundingBox();
  check(curve.y < page.viewportSize().height - 60, "on a phone, the curve is in sight");
  await page.locator(".more summary").tap();
  await page.getByLabel("Scale").selectOption("linear");
  await eventually(page, "the scale is in the address", () => location.hash.includes("scale=linear"));
  await page.locator(".theme").tap();
  await eventually(page, "the theme changes", () => document.documentElement.dataset.theme === "dark");
  await page.reload();
  await eventually(page, "the theme is kept", () => document.documentElement.dataset.theme === "dark");
  await settled(page);
}

/** Use the pages of a server whose runs are not known. */
async function visit(page, faults, base) {
  await page.goto(`${base}#page=flow`);
  await page.waitForSelector('[role="treeitem"]');
  await settled(page);
  await page.locator('[role="tree"]').focus();
  for (const key of ["ArrowDown", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await page.waitForSelector(".details .curve");
  await page.locator(".map-cells").focus();
  for (const key of ["+", "+", "ArrowRight", "Enter"]) await page.keyboard.press(key);
  await eventually(page, "the address has the steps and the target", () => location.hash.includes("target="));
  await settled(page);
  await checkPage(page, faults, "after using the page Flow");
}
