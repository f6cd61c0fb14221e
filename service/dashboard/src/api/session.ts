import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { answer, api, setCsrfToken } from "./client";

const KEY = ["session"] as const;

/** Whether keys are in force and who is signed in; keeps the token that changes carry. */
export function useSession() {
  return useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) => {
      const session = await answer(api.GET("/v1/session", { signal }));
      setCsrfToken(session.csrf_token);
      return session;
    },
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
      client.setQueryData(KEY, session);
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
