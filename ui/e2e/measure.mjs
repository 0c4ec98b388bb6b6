// Measures the page with 45,000 targets and 100,000 steps: node e2e/measure.mjs [targets]
import { serve } from "../fixtures/serve.mjs";
import { launch, open } from "./browser.mjs";

const targets = Number(process.argv[2] ?? 45_000);
const server = await serve({ large: targets, period: 1e9 }), browser = await launch();
const { page } = await open(browser, "wide", "light", server.base);
const spread = times => {
  const sorted = [...times].sort((a, b) => a - b), at = part => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]?.toFixed(0);
  return `median ${at(0.5)} ms, 95 % ${at(0.95)} ms, worst ${at(1)} ms (${sorted.length})`;
};
/** Collect the time between frames, and the long tasks, while `act` runs. */
async function frames(act) {
  await page.evaluate(() => {
    window.times = [];
    window.tasks = [];
    let before = performance.now();
    const tick = now => {
      window.times.push(now - before);
      before = now;
      if (window.times) window.frame = requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    window.watch = new PerformanceObserver(list => list.getEntries().forEach(entry => window.tasks.push(entry.duration)));
    window.watch.observe({ entryTypes: ["longtask"] });
  });
  await act();
  return page.evaluate(() => {
    cancelAnimationFrame(window.frame);
    window.watch.disconnect();
    return { times: window.times, tasks: window.tasks };
  });
}
const report = (name, { times, tasks }) => console.log(`${name}: frames ${spread(times)}; tasks over 50 ms: ${tasks.length ? spread(tasks) : "none"}`);

const start = performance.now();
await page.goto(`${server.base}#page=overview&run=large`);
await page.waitForSelector(".sentence h1");
console.log(`overview: sentence after ${(performance.now() - start).toFixed(0)} ms`);
console.log(await page.evaluate(() => performance.getEntriesByType("paint").map(one => `${one.name} ${one.startTime.toFixed(0)} ms`).join(", ")));
await page.waitForSelector(".flowing-bars .bar-value");
await page.waitForFunction(() => !document.querySelector(".loading"));
console.log(`overview: complete after ${(performance.now() - start).toFixed(0)} ms`);

let began = performance.now();
await page.getByRole("link", { name: "Flow" }).click();
await page.waitForSelector('[role="treeitem"]');
console.log(`flow: rows after ${(performance.now() - began).toFixed(0)} ms`);
await page.waitForTimeout(1500);
const box = await page.locator(".map-cells").boundingBox();
await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
report("zoom", await frames(async () => {
  await page.keyboard.down("Control");
  for (let i = 0; i < 25; i++) {
    await page.mouse.wheel(0, -100);
    await page.waitForTimeout(16);
  }
  await page.keyboard.up("Control");
}));
await page.waitForTimeout(800);
report("pan", await frames(async () => {
  await page.mouse.down();
  for (let i = 0; i < 40; i++) await page.mouse.move(box.x + box.width / 2 - i * 8, box.y + box.height / 2);
  await page.mouse.up();
}));
await page.locator('input[type="search"]').fill("**.weight");
await page.waitForFunction(() => document.querySelector(".matches").textContent.includes("of"));
await page.waitForTimeout(500);
report("scroll 45,000 rows", await frames(async () => {
  for (let i = 0; i < 40; i++) {
    await page.mouse.wheel(0, 700);
    await page.waitForTimeout(16);
  }
}));
await page.waitForTimeout(600);
const curve = await page.evaluate(async () => {
  const row = document.querySelectorAll('[role="option"]')[5], begin = performance.now();
  row.click();
  await new Promise(done => {
    const look = () => document.querySelector(".details .curve-plot canvas") ? done() : requestAnimationFrame(look);
    look();
  });
  return performance.now() - begin;
});
console.log(`curve: drawn ${curve.toFixed(0)} ms after the click`);
began = performance.now();
await page.locator('input[type="search"]').fill("experts.31.down !**.bias");
await page.waitForFunction(() => !document.querySelector(".matches").textContent.startsWith("45"));
console.log(`search: answered after ${(performance.now() - began).toFixed(0)} ms, with 120 ms of waiting for the next letter`);
console.log(`memory: ${await page.evaluate(() => Math.round(performance.memory.usedJSHeapSize / 1e6))} MB`);
await browser.close();
await server.close();
process.exit(0);
