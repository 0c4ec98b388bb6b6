import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { moved, type Window, zoomed } from "../model/steps";

/** Pixels that a press may move and still be a click. */
const CLICK = 4;

export interface Gestures {
  window: Window; width: number;
  move: (next: Window) => void;
  point: (x: number, y: number) => void;
  leave: () => void;
  click: (x: number, y: number) => void;
}

/** Wheel with ctrl or ⌘ and pinching zoom, dragging pans. The wheel alone scrolls the rows, as usual. */
export function useGestures(ref: RefObject<HTMLElement | null>, gestures: Gestures): void {
  const now = useRef(gestures);
  now.current = gestures;
  useEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const down = new Map<number, { x: number; y: number }>();
    let start: { window: Window; x: number; far: boolean; apart: number } | null = null;
    const place = (event: MouseEvent) => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const stepsPerPixel = (window: Window) => (window.to - window.from) / Math.max(1, now.current.width);
    const spread = () => {
      const [one, two] = [...down.values()];
      return one && two ? { x: (one.x + two.x) / 2, apart: Math.max(20, Math.abs(one.x - two.x)) } : { x: one?.x ?? 0, apart: 0 };
    };
    const begin = () => {
      const { x, apart } = spread();
      start = { window: now.current.window, x, apart, far: start?.far ?? false };
    };
    const onWheel = (event: WheelEvent) => {
      const { window, move } = now.current, pixels = event.deltaMode === 1 ? 18 : 1;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        const at = window.from + place(event).x * stepsPerPixel(window);
        move(zoomed(window, at, Math.exp(Math.max(-60, Math.min(60, event.deltaY * pixels)) * 0.006)));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        move(moved(window, (event.deltaX || event.deltaY) * pixels * stepsPerPixel(window)));
      }
    };
    const onDown = (event: PointerEvent) => {
      if (event.button !== 0) return;
      down.set(event.pointerId, place(event));
      if (down.size === 1) start = null;
      begin();
    };
    const onMove = (event: PointerEvent) => {
      const at = place(event);
      if (!down.has(event.pointerId)) {
        if (event.pointerType !== "touch") now.current.point(at.x, at.y);
        return;
      }
      down.set(event.pointerId, at);
      if (!start) return;
      const { x, apart } = spread(), dragged = x - start.x;
      if (!start.far && Math.abs(dragged) < CLICK && down.size === 1) return;
      if (!start.far) element.setPointerCapture(event.pointerId);
      start.far = true;
      const factor = apart && start.apart ? start.apart / apart : 1;
      const middle = start.window.from + start.x * stepsPerPixel(start.window);
      const next = zoomed(start.window, middle, factor);
      now.current.move(moved(next, -dragged * stepsPerPixel(next)));
      now.current.leave();
    };
    const onUp = (event: PointerEvent) => {
      if (!down.delete(event.pointerId) || !start) return;
      if (!start.far && event.type === "pointerup") {
        const at = place(event);
        now.current.click(at.x, at.y);
      }
      if (down.size) begin();
      else start = null;
    };
    const onLeave = () => now.current.leave();
    element.addEventListener("wheel", onWheel, { passive: false });
    element.addEventListener("pointerdown", onDown);
    element.addEventListener("pointermove", onMove);
    element.addEventListener("pointerup", onUp);
    element.addEventListener("pointercancel", onUp);
    element.addEventListener("pointerleave", onLeave);
    return () => {
      element.removeEventListener("wheel", onWheel);
      element.removeEventListener("pointerdown", onDown);
      element.removeEventListener("pointermove", onMove);
      element.removeEventListener("pointerup", onUp);
      element.removeEventListener("pointercancel", onUp);
      element.removeEventListener("pointerleave", onLeave);
    };
  }, []);
}
