import { FONT, surface } from "./surface";
import { roundStep } from "../model/colour";
import { count } from "../model/numbers";
import type { Window } from "../model/steps";

/** Pixels between two rows. */
const GAP = 1;
/** A cell that is not finite is at least this wide, so that one step among thousands stays visible. */
const LEAST_BAD = 4;

export interface Picture {
  /** One cell for each pixel of each row. */
  strips: Float32Array[];
  rowHeight: number;
  /** Pixels of the first row that are above the top. */
  offset: number;
  paint: (cell: number) => number;
  bad: string;
  mark: string;
}

let small: HTMLCanvasElement | null = null;

/** Draw the rows of the map. */
export function drawMap(canvas: HTMLCanvasElement, width: number, height: number, picture: Picture): void {
  const context = surface(canvas, width, height);
  const { strips, rowHeight, offset, paint } = picture;
  if (!strips.length || width < 1) return;
  small ??= document.createElement("canvas");
  small.width = width;
  small.height = strips.length;
  const image = new ImageData(width, strips.length), pixels = new Uint32Array(image.data.buffer);
  strips.forEach((strip, row) => {
    for (let x = 0; x < width; x++) pixels[row * width + x] = paint(strip[x]!);
  });
  small.getContext("2d")!.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  strips.forEach((strip, row) => {
    const top = row * rowHeight - offset;
    context.drawImage(small!, 0, row, width, 1, 0, top, width, rowHeight - GAP);
    drawBad(context, strip, top, rowHeight - GAP, picture);
  });
}

/** Draw the cells that are not finite: red with stripes, so that colour is not the only sign. */
function drawBad(context: CanvasRenderingContext2D, strip: Float32Array, top: number, height: number, { bad, mark }: Picture): void {
  for (let x = 0; x < strip.length; x++) {
    if (strip[x] !== Infinity) continue;
    let end = x + 1;
    while (end < strip.length && strip[end] === Infinity) end++;
    const more = Math.max(0, LEAST_BAD - (end - x)) / 2;
    const left = Math.max(0, x - more), right = Math.min(strip.length, end + more);
    context.fillStyle = bad;
    context.fillRect(left, top, right - left, height);
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, height);
    context.clip();
    context.strokeStyle = mark;
    context.lineWidth = 1.4;
    context.beginPath();
    // The stripes hang on the page, not on the run, so that neighbouring rows and runs join.
    for (let at = Math.floor((left - height) / 7) * 7; at < right; at += 7) {
      context.moveTo(at, top + height);
      context.lineTo(at + height, top);
    }
    context.stroke();
    context.restore();
    x = end - 1;
  }
}

/** Return round steps for an axis, at least `apart` pixels from each other. */
export function axisSteps(window: Window, width: number, apart = 84): number[] {
  const span = window.to - window.from;
  const each = Math.max(1, roundStep(span / Math.max(1, width / apart)));
  const found: number[] = [];
  for (let step = Math.ceil(window.from / each) * each; step < window.to; step += each) found.push(step);
  return found;
}

/** Draw the axis of steps. A tick is at the middle of its step. */
export function drawAxis(canvas: HTMLCanvasElement, width: number, height: number, window: Window, text: string): void {
  const context = surface(canvas, width, height);
  context.font = FONT;
  context.fillStyle = text;
  context.strokeStyle = text;
  context.textBaseline = "top";
  const perStep = width / (window.to - window.from);
  for (const step of axisSteps(window, width)) {
    const x = (step + 0.5 - window.from) * perStep, label = count(step), half = context.measureText(label).width / 2;
    if (x > width) continue;
    context.globalAlpha = 0.5;
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, 0);
    context.lineTo(Math.round(x) + 0.5, 4);
    context.stroke();
    context.globalAlpha = 1;
    context.fillText(label, Math.min(Math.max(0, x - half), width - 2 * half), 6);
  }
}

export interface Marks {
  rowHeight: number;
  offset: number;
  /** Row and pixels of the cell under the pointer or the keys. */
  cursor: { row: number; left: number; right: number } | null;
  /** Selected row, and pixels of the selected step. */
  selectedRow: number;
  selected: { left: number; right: number } | null;
  line: string;
}

/** Draw the crosshair and the selection over the map. */
export function drawMarks(canvas: HTMLCanvasElement, width: number, height: number, marks: Marks): void {
  const context = surface(canvas, width, height);
  const { rowHeight, offset, cursor, selectedRow, selected } = marks;
  context.strokeStyle = marks.line;
  context.fillStyle = marks.line;
  if (selected) {
    context.globalAlpha = 0.9;
    context.lineWidth = 1;
    context.strokeRect(Math.round(selected.left) - 0.5, -2, Math.max(2, selected.right - selected.left) + 1, height + 4);
  }
  if (selectedRow >= 0) {
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.strokeRect(1, selectedRow * rowHeight - offset, width - 2, rowHeight - GAP);
  }
  if (!cursor) return;
  const top = cursor.row * rowHeight - offset, middle = (cursor.left + cursor.right) / 2;
  context.globalAlpha = 0.45;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(middle, 0);
  context.lineTo(middle, height);
  context.stroke();
  context.globalAlpha = 1;
  context.lineWidth = 1.5;
  context.strokeRect(cursor.left - 0.75, top - 0.75, Math.max(3, cursor.right - cursor.left) + 1.5, rowHeight - GAP + 1.5);
}
