import { useEffect, useRef, useState } from "preact/hooks";
import { bounded, followed, whole, type Window } from "../model/steps";

/** Milliseconds without movement before the address of the page changes. */
const SETTLE = 200;

export type Steps = [number, number] | null;

/**
 * The window of steps on screen. It moves at once; the address follows when the movement has stopped. A window that
 * shows the end of a live run goes on to show the end.
 */
export function useWindow(steps: Steps, first: number, last: number, onSteps: (steps: Steps) => void): [Window, (next: Window) => void] {
  const fromSteps = (): Window => steps ? bounded({ from: steps[0], to: steps[1] + 1 }, first, last) : whole(first, last);
  const [moving, setMoving] = useState<Window | null>(null);
  const timer = useRef(0), before = useRef(last), told = useRef(onSteps);
  told.current = onSteps;
  const key = steps ? steps.join() : "";
  useEffect(() => setMoving(null), [key, first]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    const old = before.current;
    before.current = last;
    if (!steps || old === last || old < first) return;
    const shown = { from: steps[0], to: steps[1] + 1 }, next = followed(shown, old, last);
    if (next !== shown) told.current([next.from, next.to - 1]);
  }, [last]);
  const move = (next: Window) => {
    const kept = bounded(next, first, last), all = whole(first, last);
    setMoving(kept);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const isWhole = kept.to - kept.from >= all.to - all.from - 1e-6;
      const asked: Steps = isWhole ? null : [+kept.from.toFixed(3), +(kept.to - 1).toFixed(3)];
      if ((asked ? asked.join() : "") === key) setMoving(null);
      told.current(asked);
    }, SETTLE);
  };
  return [moving ?? fromSteps(), move];
}
