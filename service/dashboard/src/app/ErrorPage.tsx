import { useEffect, useState } from "react";
import { isRouteErrorResponse, useLocation, useRouteError } from "react-router";
import { answer, api } from "../api/client";
import { Button, ButtonLink, EmptyState, ErrorNotice, Untrusted } from "../design";
import { Page } from "./Page";

export function NotFoundPage() {
  const { pathname } = useLocation();
  return (
    <Page title="Not found">
      <EmptyState title="There is no page here" action={<ButtonLink to="/">All searches</ButtonLink>}>
        <p>
          The address <Untrusted text={pathname} /> names no page. Ids are long: check that it was copied
          whole.
        </p>
      </EmptyState>
    </Page>
  );
}

/** In place of a page that failed while it was drawn. */
export function ErrorPage() {
  const error = useRouteError();
  const [wasReloaded] = useState(reloadedJustNow);
  if (isRouteErrorResponse(error) && error.status === 404) return <NotFoundPage />;
  if (isUnread(error) && !wasReloaded) return <Unread />;
  return (
    <Page title="The page failed">
      <ErrorNotice
        error={error}
        what="This page failed"
        safe="Searches go on without it: nothing of theirs is lost. Load the page again, or go to another."
      />
      <div>
        <Button kind="primary" onClick={() => location.reload()}>
          Load again
        </Button>
      </div>
    </Page>
  );
}

const AGAIN_MS = 3000;
const RELOADED = "warpsmith.reloaded";
const JUST_NOW_MS = 30_000;

/** Whether the code of a page could not be read: browsers have no name for that error, and words of their own. */
export function isUnread(error: unknown): boolean {
  return (
    error instanceof Error &&
    /preload CSS|dynamically imported module|module script failed/i.test(error.message)
  );
}

/** Whether this tab loaded itself again a moment ago: once more would not help. */
function reloadedJustNow(): boolean {
  return Date.now() - Number(sessionStorage.getItem(RELOADED) ?? 0) < JUST_NOW_MS;
}

/** In place of a page whose code the service did not give: it is away, or another version of it runs by now. */
function Unread() {
  useEffect(() => {
    const look = () =>
      answer(api.GET("/healthz")).then(
        () => {
          sessionStorage.setItem(RELOADED, String(Date.now()));
          location.reload();
        },
        () => null,
      );
    void look();
    const timer = setInterval(() => void look(), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <Page title="Waiting for the service">
      <EmptyState title="The service did not give this page">
        <p role="status">
          It is asked again every few seconds, and the page opens as soon as it answers. Searches go on
          without it.
        </p>
      </EmptyState>
    </Page>
  );
}
