import { isRouteErrorResponse, useLocation, useRouteError } from "react-router";
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
  if (isRouteErrorResponse(error) && error.status === 404) return <NotFoundPage />;
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
