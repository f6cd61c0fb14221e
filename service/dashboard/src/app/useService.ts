/** Whether the service answers: told by any request of the page, and asked where the page asks nothing itself. */

import { useQueryClient } from "@tanstack/react-query";
import { createContext, useEffect, useState } from "react";
import { answer, api, onReach } from "../api/client";

const AGAIN_MS = 3000;
/** A page that has heard nothing of the service for as long asks whether it is there; so long it waits for an answer. */
const QUIET_MS = 10_000;

/** Epoch seconds since when the service does not answer, for the pages; null while it does. */
export const DownSince = createContext<number | null>(null);

function ask(): void {
  const signal = AbortSignal.timeout(QUIET_MS);
  void answer(api.GET("/healthz", { signal })).catch(() => null);
}

/** Epoch seconds since when the service does not answer; null while it does. When it is back, all is read anew. */
export function useServiceDown(onBack: () => void): number | null {
  const client = useQueryClient();
  const [since, setSince] = useState<number | null>(null);
  useEffect(() => onReach((reached) => setSince((old) => (reached ? null : (old ?? Date.now() / 1000)))), []);
  useEffect(() => {
    if (since !== null) return;
    let timer = setTimeout(onQuiet, QUIET_MS);
    function wait() {
      clearTimeout(timer);
      timer = setTimeout(onQuiet, QUIET_MS);
    }
    function onQuiet() {
      if (!document.hidden) ask();
      wait();
    }
    const forget = onReach(wait);
    return () => {
      forget();
      clearTimeout(timer);
    };
  }, [since]);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(ask, AGAIN_MS);
    return () => {
      clearInterval(timer);
      onBack();
      void client.invalidateQueries();
    };
  }, [since, client, onBack]);
  return since;
}
