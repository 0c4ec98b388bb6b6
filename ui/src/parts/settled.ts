import { useEffect, useRef, useState } from "preact/hooks";

/** Follow a value when it has not changed for some milliseconds. */
export function useSettled(value: string, milliseconds: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

/** Follow a value, but change at most once in so many milliseconds. */
export function useThrottled(value: string, milliseconds: number): string {
  const [shown, setShown] = useState(value);
  const next = useRef(0);
  useEffect(() => {
    const timer = setTimeout(() => {
      next.current = Date.now() + milliseconds;
      setShown(value);
    }, Math.max(0, next.current - Date.now()));
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return shown;
}

const REST = 300;

/**
 * Return true if a selection has not changed for a moment. The server reads the whole run for some answers, and somebody
 * who walks through the rows wants the curves, not these.
 */
export function useRests(selection: string): boolean {
  const [rested, setRested] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setRested(selection), REST);
    return () => clearTimeout(timer);
  }, [selection]);
  return rested === selection;
}
