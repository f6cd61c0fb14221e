import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { answer, api, renewCsrfToken, setCsrfToken } from "./client";

export const SESSION = ["session"] as const;
const CHECK_MS = 30_000;

/** Whether keys are in force and who is signed in; keeps the token that changes carry. */
export function useSession() {
  return useQuery({
    queryKey: SESSION,
    queryFn: async ({ signal }) => {
      const session = await answer(api.GET("/v1/session", { signal }));
      renewCsrfToken(session.csrf_token);
      return session;
    },
    // An open stream of events outlives the session that it was begun with, and may bring nothing for long.
    refetchInterval: ({ state }) => (state.data?.csrf_token ? CHECK_MS : false),
    // Read again when the page comes back into view: another tab may have begun another session, with another token.
    staleTime: 5000,
  });
}

export function useSignIn() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (key: string) => answer(api.POST("/v1/session", { body: { key } })),
    onSuccess: (session) => {
      setCsrfToken(session.csrf_token);
      client.clear();
      client.setQueryData(SESSION, session);
    },
  });
}

export function useSignOut() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => api.DELETE("/v1/session"),
    onSuccess: () => {
      setCsrfToken(null);
      client.clear();
    },
  });
}
