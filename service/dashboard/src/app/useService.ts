/** Whether the service answers: told by any request of the page, and asked again until it is back. */

import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { answer, api, onReach } from "../api/client";

const AGAIN_MS = 3000;

/** Epoch seconds since when the service does not answer; null while it does. When it is back, all is read anew. */
export function useServiceDown(onBack: () => void): number | null {
  const client = useQueryClient();
  const [since, setSince] = useState<number | null>(null);
  useEffect(() => onReach((reached) => setSince((old) => (reached ? null : (old ?? Date.now() / 1000)))), []);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => void answer(api.GET("/healthz")).catch(() => null), AGAIN_MS);
    return () => {
      clearInterval(timer);
      onBack();
      void client.invalidateQueries();
    };
  }, [since, client, onBack]);
  return since;
}
