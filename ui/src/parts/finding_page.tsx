import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { blocksOf, piecesOf, type Block } from "../model/markdown";

/** A code that opens the page about it. */
export function Code({ code, pages }: { code: string; pages: Record<string, string> }) {
  const dialog = useRef<HTMLDialogElement>(null), page = pages[code];
  if (page === undefined) return <span class="code">{code}</span>;
  return (
    <>
      <button type="button" class="code link" title={`What ${code} means`} onClick={() => dialog.current?.showModal()}>{code}</button>
      <dialog ref={dialog} class="finding-page" aria-label={`Page about ${code}`}
        onClick={event => event.target === event.currentTarget && event.currentTarget.close()}>
        <button type="button" class="close" onClick={() => dialog.current?.close()}>Close</button>
        {blocksOf(page).map((block, i) => <Part key={i} block={block} />)}
      </dialog>
    </>
  );
}

function Part({ block }: { block: Block }): ComponentChildren {
  switch (block.kind) {
    case "title": return <h2>{words(block.text)}</h2>;
    case "code": return <pre tabIndex={0}>{block.text}</pre>;
    case "list": return <ul>{block.items.map((item, i) => <li key={i}>{words(item)}</li>)}</ul>;
    case "paragraph": return <p>{words(block.text)}</p>;
  }
}

function words(text: string) {
  return piecesOf(text).map((piece, i) => piece.code ? <code key={i}>{piece.text}</code> : piece.text);
}
