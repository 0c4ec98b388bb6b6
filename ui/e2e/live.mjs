import { check, eventually, mapPrint, settled } from "./checks.mjs";

/** Milliseconds from the end of a step until its row is on the screen. */
const SOON = 2000;
const hash = page => page.evaluate(() => decodeURIComponent(location.hash));

/** A process trains while the page is open; then the server ends. */
export async function exerciseLive(page, real) {
  const heard = [];
  await page.goto(`${real.base}#page=flow&run=good`);
  await page.waitForSelector('[role="treeitem"]');
  real.train(step => heard.push({ step, at: Date.now() }));
  await eventually(page, "a new run is in the list", () => [...document.querySelectorAll(".run-choice option")].some(one => one.value === "live"), undefined, 240_000);
  await page.locator(".run-choice select").selectOption("live");
  await page.waitForSelector(".badge.live");
  await settled(page);
  // The page notes when each step appears, because asking it from here would add to the time.
  await page.evaluate(() => {
    window.seen = [];
    const look = () => {
      const last = Number(/–([\d,]+)/.exec(document.querySelector(".facts")?.textContent)?.[1].replace(/,/g, ""));
      if (last !== window.seen.at(-1)?.last) window.seen.push({ last, at: Date.now() });
      requestAnimationFrame(look);
    };
    look();
  });
  const print = await mapPrint(page);
  await page.waitForTimeout(6000);
  const seen = (await page.evaluate(() => window.seen)).slice(1);
  const waits = heard.filter(({ at }) => at > (seen[0]?.at ?? 0)).flatMap(({ step, at }) => {
    const shown = seen.find(one => one.last >= step);
    return shown ? [shown.at - at] : [];
  }).sort((a, b) => a - b);
  check(waits.length > 5, `new steps show (${waits.length} in 6 s)`);
  const middle = waits[waits.length >> 1], most = waits.at(-1);
  console.log(`live: a step is on the screen after ${middle} ms (median), ${most} ms (longest) of ${waits.length}`);
  check(middle <= SOON, `a step is on the screen after ${middle} ms, at most ${SOON} ms expected`);
  check(await mapPrint(page) !== print, "new steps are in the map");

  // A window at the end follows the run. It reaches a little further, because the run grows while it is set.
  const last = await page.evaluate(() => {
    const { last } = window.seen.at(-1);
    location.hash = `page=flow&run=live&steps=${last - 20}~${last + 20}`;
    return last + 20;
  });
  await eventually(page, "the window follows the end", old => Number(/steps=\d+(?:\.\d+)?~([\d.]+)/.exec(decodeURIComponent(location.hash))?.[1]) > old + 3, last, 20_000);
  check((await hash(page)).includes("run=live"), "the run stays in the address");

  // Both runs have the same settings. The answer and the curves follow the live run, although another run is open.
  await page.evaluate(() => { location.hash = "page=compare&run=good&with=good&with=live"; });
  await eventually(page, "a live run is equal so far", () => /^\S*\s*Equal so far/.test(document.querySelector(".sentence .tone")?.textContent ?? ""), undefined, 20_000);
  const ends = () => [...document.querySelectorAll(".curve-plot")].map(one => Number(/live: [^;]* to ([\d,]+),/.exec(one.getAttribute("aria-label"))?.[1].replace(/,/g, "")));
  const before = await page.evaluate(ends);
  check(before.some(end => end > 0), `the curve of the live run is drawn (${before})`);
  await eventually(page, "the curve of the live run grows", old => Number(/live: [^;]* to ([\d,]+),/.exec(document.querySelector(".curve-plot").getAttribute("aria-label"))?.[1].replace(/,/g, "")) > old + 10, before[0], 10_000);

  real.stopServer();
  await eventually(page, "a lost connection is told", () => document.querySelector(".badge.lost"), undefined, 5000);
  check(await page.locator(".curve-plot").count() > 0, "the curves stay when the connection is lost");
}
