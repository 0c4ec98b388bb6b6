import { useEffect, useState } from "preact/hooks";

/** Return whether a media query matches, and follow its changes. */
export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query), follow = () => setMatches(list.matches);
    follow();
    list.addEventListener("change", follow);
    return () => list.removeEventListener("change", follow);
  }, [query]);
  return matches;
}

/** Rows are higher where a finger selects them. */
export function useRowHeight(): number {
  return useMedia("(pointer: coarse)") ? 28 : 20;
}
