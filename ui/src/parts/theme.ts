import { useEffect, useState } from "preact/hooks";
import { colour, type Colours } from "../model/colour";

export type Theme = "light" | "dark";
const KEPT = "tenterhook-theme";

/** Colours for drawing on a canvas. They are read from the style sheet, so that each colour has one source. */
export interface Ink {
  theme: Theme; text: string; quiet: string; line: string; surface: string; bad: string; accent: string; cells: Colours;
}

function stored(): Theme | null {
  try {
    const value = localStorage.getItem(KEPT);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // a file in a strict browser has no storage
  }
}

function ink(theme: Theme): Ink {
  const style = getComputedStyle(document.documentElement), read = (name: string) => style.getPropertyValue(name).trim();
  return {
    theme, text: read("--text"), quiet: read("--quiet"), line: read("--line"), surface: read("--surface"),
    bad: read("--bad"), accent: read("--accent"),
    cells: {
      zero: colour(read("--zero")), nothing: colour(read("--nothing")), waiting: colour(read("--waiting")),
      bad: colour(read("--bad")),
    },
  };
}

/** Return the theme: the reader's choice, else that of the system. */
export function useTheme(): { ink: Ink; flip: () => void } {
  const [chosen, setChosen] = useState<Theme | null>(stored);
  const [system, setSystem] = useState<Theme>(() => matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const theme = chosen ?? system;
  const [made, setMade] = useState<Ink>(() => {
    document.documentElement.dataset.theme = theme;
    return ink(theme);
  });
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setSystem(query.matches ? "dark" : "light");
    query.addEventListener("change", follow);
    return () => query.removeEventListener("change", follow);
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    setMade(ink(theme));
  }, [theme]);
  const flip = () => {
    const other = theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEPT, other);
    } catch { /* the choice then lasts until the page is closed */ }
    setChosen(other);
  };
  return { ink: made, flip };
}
