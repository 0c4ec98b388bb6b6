// Takes pictures of pages, to look at: node e2e/shots.mjs [filter]
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch, open, SHOTS } from "./browser.mjs";

const file = process.env.BASE ?? pathToFileURL(resolve(import.meta.dirname, "../fixtures/out/report.html")).href;
const places = {
  overview: "#page=overview&run=gpt-nan",
  flow: "#page=flow&run=gpt-nan",
  selected: "#page=flow&run=gpt-nan&target=transformer.h.7.mlp.c_fc.weight&step=690&steps=560~760&open=transformer.h.7&open=transformer.h.7.mlp",
  search: "#page=flow&run=gpt-nan&search=**.weight",
  hooks: "#page=hooks&run=gpt-nan",
  compare: "#page=compare&run=gpt-nan&with=gpt-nan&with=gpt-good",
  hostile: "#page=overview&run=hostile",
  hostileflow: "#page=flow&run=hostile",
  tiny: "#page=overview&run=tiny",
};
const wanted = process.argv[2] ?? "";
const browser = await launch();
for (const size of ["wide", "narrow"]) {
  for (const theme of ["light", "dark"]) {
    const { page, context, faults } = await open(browser, size, theme, file.split("#")[0].replace(/[^/]*$/, ""));
    let first = true;
    for (const [name, hash] of Object.entries(places)) {
      const id = `${name}-${size}-${theme}`;
      if (!id.match(wanted)) continue;
      if (first) await page.goto(file + hash);
      else await page.evaluate(next => { location.hash = next; }, hash);
      first = false;
      await page.waitForTimeout(500);
      await page.screenshot({ path: resolve(SHOTS, `${id}.png`), fullPage: true });
    }
    faults.forEach(fault => console.log(size, theme, fault));
    await context.close();
  }
}
await browser.close();
