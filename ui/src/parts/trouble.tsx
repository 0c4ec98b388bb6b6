import { DataError } from "../data/source";

/** Says what went wrong and what to do, at the place where the data are missing. */
export function Trouble({ error, retry }: { error: unknown; retry?: () => void }) {
  const message = error instanceof Error ? error.message : String(error);
  const remedy = error instanceof DataError ? error.remedy : "reload the page; if it happens again, report it as a bug";
  return (
    <div class="trouble" role="alert">
      <p><span class="sign error"><span aria-hidden="true">✕</span> error</span> {message}</p>
      <p class="quiet">What to do: {remedy}</p>
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return <p class="loading" role="status">Loading {what} …</p>;
}
