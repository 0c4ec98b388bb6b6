import { drawAxis } from "../draw/heat_map";
import { FONT } from "../draw/surface";
import type { Scale } from "../model/colour";
import { count } from "../model/numbers";
import type { Row } from "../model/rows";
import { cellStart, type Window } from "../model/steps";
import type { Fetch } from "../model/tiles";
import { saveCanvas, saveText } from "./save";
import type { Ink } from "./theme";

/** What the map shows now, for its export. */
export interface MapHandle {
  name: string; rows: Row[]; from: number; to: number; shown: Window; each: number; last: number;
  range: [number, number]; scale: Scale; strips: () => Float32Array[]; fetch: Fetch; map: HTMLCanvasElement | null;
  rowHeight: number; width: number; ink: Ink; paint: (cell: number) => number;
}

/** Rows of one request for a table. */
const ROWS_AT_ONCE = 256;
const COLUMNS_MOST = 2000;

/** Save all rows of the list, with the cells of the steps on screen. */
export async function saveMapTable(map: MapHandle): Promise<void> {
  const start = cellStart(map.shown.from, map.each);
  const columns = Math.min(COLUMNS_MOST, Math.ceil((Math.min(map.last + 1, map.shown.to) - start) / map.each));
  const steps = Array.from({ length: columns }, (_, column) => start + column * map.each);
  const lines = [["target", ...steps].map(field).join(",")];
  for (let at = 0; at < map.rows.length; at += ROWS_AT_ONCE) {
    const rows = map.rows.slice(at, at + ROWS_AT_ONCE);
    const cells = await map.fetch({ rows, first: start, each: map.each, columns }, new AbortController().signal);
    rows.forEach((row, i) => lines.push([field(row.name), ...Array.from(cells.subarray(i * columns, (i + 1) * columns), cell =>
      cell !== cell ? "" : cell === Infinity ? "nonfinite" : String(Number(cell.toPrecision(7))))].join(",")));
  }
  saveText(`${map.name}.csv`, "text/csv", `${lines.join("\r\n")}\r\n`);
}

/** A field of CSV. A text that a spreadsheet could take for a formula gets a quote in front. */
export function field(value: string | number): string {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Save the rows on screen as a picture, with their names and the axis. */
export function saveMapPicture(map: MapHandle): void {
  if (!map.map) return;
  const scale = window.devicePixelRatio || 1, left = 280, top = 36, axis = 24;
  const height = map.map.height / scale, canvas = document.createElement("canvas");
  canvas.width = Math.round((left + map.width + 16) * scale);
  canvas.height = Math.round((top + height + axis + 12) * scale);
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  context.fillStyle = map.ink.surface;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = map.ink.text;
  context.textBaseline = "middle";
  context.font = FONT.replace("11px", "600 13px");
  context.fillText(`${map.name}, ${map.scale === "log" ? "logarithmic" : "linear"} from ${map.range[0]} to ${map.range[1]}`, 12, top / 2);
  context.font = FONT;
  const rows = map.rows.slice(map.from, map.to);
  rows.forEach((row, place) => {
    const y = top + (place + 0.5) * map.rowHeight;
    if (y > top + height) return; // the map shows only a part of its last row
    const text = row.covered > 1 ? `${row.name} (${count(row.covered)})` : row.name;
    context.fillText(text.length > 44 ? `…${text.slice(-43)}` : text, 12, y, left - 24);
  });
  context.drawImage(map.map, left, top, map.width, height);
  const steps = document.createElement("canvas");
  drawAxis(steps, map.width, axis, map.shown, map.ink.text);
  context.drawImage(steps, left, top + height, map.width, axis);
  saveCanvas(`${map.name}.png`, canvas);
}
