import type { RouteObject } from "react-router";
import { Skeleton } from "../design";
import { ErrorPage, NotFoundPage } from "./ErrorPage";
import { Leave } from "./Leave";
import { Shell } from "./Shell";

/** Every page is a module of its own, loaded when it is first visited. */
const page = (load: () => Promise<{ default: React.ComponentType }>) => async () => ({
  Component: (await load()).default,
});

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
          { path: "docs", element: <Leave to="/docs.html" /> },
          { path: "*", Component: NotFoundPage },
        ],
      },
    ],
  },
];
