import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { useState } from "react";
import { createBrowserRouter, RouterProvider } from "react-router";
import { asProblem } from "../api/problem";
import { ToastProvider } from "../design";
import { routes } from "./routes";

const TRIES = 3;

function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      // A service on this machine answers without any network, whatever the browser thinks of being online.
      mutations: { networkMode: "always" },
      queries: {
        networkMode: "always",
        staleTime: 2000,
        refetchOnWindowFocus: true,
        // What the service refuses, it refuses again; what did not come, or came as a 5xx, may come.
        retry: (failures, error) => {
          const { status } = asProblem(error);
          return failures < TRIES && (status === 0 || status >= 500);
        },
      },
    },
  });
}

export function App() {
  const [client] = useState(makeQueryClient);
  const [router] = useState(() => createBrowserRouter(routes));
  return (
    <QueryClientProvider client={client}>
      <ToastProvider>
        <RouterProvider router={router} />
      </ToastProvider>
    </QueryClientProvider>
  );
}
