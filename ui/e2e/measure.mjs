// Measures a page of a running server: npm run measure -- <address that `tenterhook view` printed> [run]
// It prints medians of several rounds, in milliseconds from an action to the picture that answers it.
import { launch, open } from "./browser.mjs";

const [base, run = ""] = process.argv.slice(2);
if (!base) throw new Error("say which address `tenterhook view` printed");
const about = run ? `&run=${encodeURIComponent(run)}` : "", ROUNDS = 5;
const spread = times => {
  const sorted = [...times].sort((a, b) => a - b);
  return `median ${sorted[sorted.length >> 1].toFixed(0)} ms, longest ${sorted.at(-1).toFixed(0)} ms (${sorted.length})`;
};
const browser = await launch();

const paints = [], maps = [];
let page;
for (let round = 0; round < ROUNDS; round++) {
  await page?.context().close();
  ({ page } = await open(browser, "wide", "light", base));
  page.setDefaultTimeout(120_000);
  // The map is drawn when its cells have several colours.
  await page.addInitScript(() => {
    window.colours = () => {
      const canvas = document.querySelector(".map-cells canvas");
      if (!canvas?.width) return 0;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, Math.min(canvas.height, 200));
      return new Set(Array.from({ length: 400 }, (_, i) => data.slice(i * (data.length / 400 & ~3), (i * (data.length / 400 & ~3)) + 4).join())).size;
    };
    const look = () => {
      if (window.colours() > 4) window.drawn ??= performance.now();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await page.goto(`${base}#page=flow${about}`);
  await page.waitForFunction(() => window.drawn);
  const [text, drawn] = await page.evaluate(() => [performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN, window.drawn]);
  paints.push(text);
  maps.push(drawn);
}
console.log(`first paint: ${spread(paints)}`);
console.log(`first meaningful paint, the map with its cells: ${spread(maps)}; goal 1,500 ms`);

/** Turn the wheel over the map, and return the milliseconds until the next picture is drawn. */
const turn = options => page.evaluate(async given => {
  const box = document.querySelector(".map-cells"), at = box.getBoundingClientRect(), begin = performance.now();
  box.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, clientX: at.left + at.width * 0.6, clientY: at.top + 20, ...given }));
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - begin;
}, options);
/** Return the milliseconds from now until all cells on screen have arrived. */
async function loaded() {
  const begin = performance.now();
  await page.waitForTimeout(80); // cells are asked for after a pause of 50 ms
  await page.waitForFunction(() => !document.querySelector(".busy"));
  return performance.now() - begin;
}
await page.waitForFunction(() => !document.querySelector(".busy, .loading"));
const pictures = [], full = [];
for (let i = 0; i < 12; i++) {
  pictures.push(await turn({ ctrlKey: true, deltaY: i < 8 ? -100 : 100 }));
  full.push(await loaded());
  pictures.push(await turn({ deltaX: i % 2 ? -300 : 300 }));
  full.push(await loaded());
}
console.log(`zoom and pan, the next picture: ${spread(pictures)}; goal 150 ms`);
console.log(`zoom and pan, all cells at full detail: ${spread(full)}`);

await page.locator('input[type="search"]').fill("**.weight");
await page.waitForFunction(() => document.querySelector(".matches").textContent.includes("of"));
await page.waitForFunction(() => !document.querySelector(".busy"));
const curves = [];
for (let i = 0; i < 9; i++) {
  curves.push(await page.evaluate(async place => {
    const rows = document.querySelectorAll('[role="option"]'), row = rows[place * 2 % rows.length];
    const name = row.title.split(" ")[0], begin = performance.now();
    row.click();
    await new Promise(done => {
      const look = () => document.querySelector(".details h2")?.textContent === name && document.querySelector(".details .curve-plot canvas") ? done() : requestAnimationFrame(look);
      look();
    });
    return performance.now() - begin;
  }, i));
  await page.waitForTimeout(300);
}
console.log(`open a curve: ${spread(curves)}; goal 200 ms`);
await browser.close();
