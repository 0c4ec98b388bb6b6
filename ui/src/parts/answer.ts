import { useEffect, useRef, useState } from "preact/hooks";

export interface Answer<T> { value: T | null; error: unknown; loading: boolean; retry: () => void }

/**
 * Ask for data when `keys` change. The answer to other `keys` is dropped; a change of `beat` alone keeps the answer on
 * screen until the next one has arrived, so that a live page does not flicker.
 */
export function useAnswer<T>(ask: ((signal: AbortSignal) => Promise<T>) | null, keys: unknown[], beat: number | string = 0): Answer<T> {
  const [answer, setAnswer] = useState<{ for: string; value: T | null; error: unknown }>({ for: "", value: null, error: null });
  const [tries, setTries] = useState(0);
  const busy = useRef(false), again = useRef(false);
  const key = useKey(keys);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!ask) return undefined;
    const stop = new AbortController();
    busy.current = true;
    ask(stop.signal).then(
      value => stop.signal.aborted || setAnswer({ for: key, value, error: null }),
      (error: unknown) => stop.signal.aborted || setAnswer(before => ({ for: key, value: before.for === key ? before.value : null, error })),
    ).finally(() => {
      if (stop.signal.aborted) return;
      busy.current = false;
      if (again.current) setTurn(n => n + 1);
      again.current = false;
    });
    return () => stop.abort();
  }, [key, tries, turn, ask === null]);
  // A live run asks again only after the last answer has arrived, so that requests do not pile up.
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else if (busy.current) again.current = true;
    else setTurn(n => n + 1);
  }, [beat]);
  const current = answer.for === key;
  return {
    value: current ? answer.value : null, error: current ? answer.error : null, loading: ask !== null && !current,
    retry: () => setTries(n => n + 1),
  };
}

/** Return a text that changes if and only if one of the values changes. Objects are compared by identity. */
function useKey(keys: unknown[]): string {
  const known = useRef(new WeakMap<object, number>());
  const next = useRef(0);
  return JSON.stringify(keys.map(value => {
    if (typeof value !== "object" || value === null) return value ?? null;
    if (!known.current.has(value)) known.current.set(value, next.current++);
    return [known.current.get(value)];
  }));
}
