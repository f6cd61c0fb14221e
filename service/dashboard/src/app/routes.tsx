import { useEffect } from "react";
import type { RouteObject } from "react-router";
import { Skeleton } from "../design";
import { ErrorPage, NotFoundPage } from "./ErrorPage";
import { Shell } from "./Shell";

/** Every page is a module of its own, loaded when it is first visited. */
const page = (load: () => Promise<{ default: React.ComponentType }>) => async () => ({
  Component: (await load()).default,
});

/** Asks the service for an address that is a page of its own: one comes here from the login alone. */
function Leave() {
  useEffect(() => location.reload(), []);
  return <Skeleton lines={6} />;
}

export const routes: RouteObject[] = [
  {
    Component: Shell,
    ErrorBoundary: ErrorPage,
    HydrateFallback: () => <Skeleton lines={6} />,
    children: [
      {
        ErrorBoundary: ErrorPage,
        children: [
          { index: true, lazy: page(() => import("../pages/searches")) },
          { path: "searches/new", lazy: page(() => import("../pages/submit")) },
          { path: "searches/compare", lazy: page(() => import("../pages/compare")) },
          { path: "searches/:id", lazy: page(() => import("../pages/search")) },
          { path: "kernels", lazy: page(() => import("../pages/kernels")) },
          { path: "kernels/compare", lazy: page(() => import("../pages/kernels/compare")) },
          { path: "kernels/:id", lazy: page(() => import("../pages/kernels/kernel")) },
          { path: "campaigns", lazy: page(() => import("../pages/campaigns")) },
          { path: "campaigns/:id", lazy: page(() => import("../pages/campaigns/campaign")) },
          { path: "asks", lazy: page(() => import("../pages/asks")) },
          { path: "asks/:id", lazy: page(() => import("../pages/asks/ask")) },
          { path: "system", lazy: page(() => import("../pages/system")) },
          { path: "about", lazy: page(() => import("../pages/about")) },
          { path: "login", lazy: page(() => import("../pages/login")) },
          { path: "docs", Component: Leave },
          { path: "*", Component: NotFoundPage },
        ],
      },
    ],
  },
];
