import { type FormEvent, useState } from "react";
import { useLocation, useNavigate, useSearchParams } from "react-router";
import { useSession, useSignIn } from "../../api/session";
import { Loading, Page } from "../../app/Page";
import { Button, ButtonLink, Card, EmptyState, ErrorNotice, Field, TextInput } from "../../design";
import styles from "./Login.module.css";
import { safeNext } from "./next";

export default function LoginPage() {
  const session = useSession();
  const signIn = useSignIn();
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const { state } = useLocation() as { state: { ended?: boolean } | null };
  const [key, setKey] = useState("");
  function onSubmit(event: FormEvent) {
    event.preventDefault();
    signIn.mutate(key.trim(), {
      onSuccess: () => void navigate(safeNext(params.get("next")), { replace: true }),
    });
  }
  return (
    <Page title="Sign in">
      <Loading query={session}>
        {({ keys_required }) =>
          keys_required ? (
            <div className={styles.narrow}>
              <Card>
                {state?.ended && (
                  <p role="status">
                    The session has ended: its key was revoked or it expired. Sign in again.
                  </p>
                )}
                <form onSubmit={onSubmit} className={styles.form}>
                  <Field
                    label="API key"
                    hint={
                      <>
                        Made on the server with <code>warpsmith keys create NAME</code>. The page does not
                        keep it.
                      </>
                    }
                  >
                    <TextInput
                      type="password"
                      autoComplete="current-password"
                      required
                      value={key}
                      onChange={(event) => setKey(event.target.value)}
                    />
                  </Field>
                  {signIn.error && <ErrorNotice error={signIn.error} what="You are not signed in" />}
                  <div>
                    <Button type="submit" kind="primary" busy={signIn.isPending}>
                      Sign in
                    </Button>
                  </div>
                </form>
              </Card>
            </div>
          ) : (
            <EmptyState
              title="No sign-in is needed here"
              action={<ButtonLink to="/">All searches</ButtonLink>}
            >
              <p>The service listens on this machine alone and asks for no key.</p>
            </EmptyState>
          )
        }
      </Loading>
    </Page>
  );
}
