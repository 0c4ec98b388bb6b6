import type { RefObject } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";

/** Return the inner size of an element in whole pixels, and follow its changes. */
export function useSize(ref: RefObject<HTMLElement | null>): { width: number; height: number } {
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const measure = () => {
      const width = Math.floor(element.clientWidth), height = Math.floor(element.clientHeight);
      setSize(before => before.width === width && before.height === height ? before : { width, height });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return size;
}
