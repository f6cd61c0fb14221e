import { useQueryClient } from "@tanstack/react-query";
import { Suspense, useCallback, useEffect } from "react";
import { Link, Outlet, ScrollRestoration, useLocation, useNavigate, useNavigation } from "react-router";
import { onLoginRequired } from "../api/client";
import { useHealth } from "../api/queries";
import { SESSION, useSession, useSignOut } from "../api/session";
import { Button, Skeleton, Time, Untrusted, useToast } from "../design";
import styles from "./Shell.module.css";
import { ThemeSwitch } from "./ThemeSwitch";
import { DownSince, useServiceDown } from "./useService";

const NAV = [
  { to: "/", label: "Searches" },
  { to: "/kernels", label: "Kernels" },
  { to: "/campaigns", label: "Campaigns" },
  { to: "/asks", label: "Asks" },
  { to: "/system", label: "System" },
] as const;

/** Header, the page, footer. */
export function Shell() {
  const { pathname } = useLocation();
  const navigation = useNavigation();
  const toast = useToast();
  const since = useServiceDown(
    useCallback(() => toast("The service is back; everything is read anew"), [toast]),
  );
  useLoginRedirect();
  return (
    <div className={styles.shell}>
      <a href="#main" className={styles.skip}>
        Skip to the content
      </a>
      <header className={styles.header}>
        <div className={styles.bar}>
          <Link to="/" className={styles.brand}>
            <img src="/icon.svg" alt="" width={20} height={20} />
            Warpsmith
          </Link>
          <nav aria-label="Main" className={styles.nav}>
            {NAV.map(({ to, label }) => (
              <Link
                key={to}
                to={to}
                aria-current={isWithin(pathname, to) ? "page" : undefined}
                className={styles.link}
              >
                {label}
              </Link>
            ))}
          </nav>
          <div className={styles.tools}>
            <SignedIn />
            <ThemeSwitch />
          </div>
        </div>
      </header>
      <ServiceDown since={since} />
      <main
        id="main"
        tabIndex={-1}
        className={styles.main}
        aria-busy={navigation.state === "loading" || undefined}
      >
        <DownSince value={since}>
          <Suspense fallback={<Skeleton lines={6} />}>
            <Outlet />
          </Suspense>
        </DownSince>
      </main>
      <Footer />
      <ScrollRestoration />
    </div>
  );
}

/** Says that the service is away, and since when. */
function ServiceDown({ since }: { since: number | null }) {
  return (
    <div role="status">
      {since !== null && (
        <p className={styles.down}>
          <strong>The service does not answer</strong>, since <Time at={since} />. What is shown was read
          before. The page asks again every few seconds; what was submitted before is kept.
        </p>
      )}
    </div>
  );
}

/** A search's page belongs to Searches, which is at the root. */
function isWithin(pathname: string, to: string): boolean {
  if (to === "/") return pathname === "/" || pathname.startsWith("/searches/");
  return pathname === to || pathname.startsWith(`${to}/`);
}

/** Where keys are in force and nobody is signed in, the login page comes first, and this one after it. */
function useLoginRedirect(): void {
  const navigate = useNavigate();
  const client = useQueryClient();
  useSession();
  useEffect(
    () =>
      onLoginRequired((ended) => {
        if (ended) void client.invalidateQueries({ queryKey: SESSION });
        if (location.pathname === "/login") return;
        const next = encodeURIComponent(location.pathname + location.search);
        void navigate(`/login?next=${next}`, { replace: true, state: { ended } });
      }),
    [navigate, client],
  );
}

function SignedIn() {
  const { data: session } = useSession();
  const signOut = useSignOut();
  const navigate = useNavigate();
  const toast = useToast();
  if (!session?.keys_required || session.name === null) return null;
  return (
    <Button
      kind="quiet"
      busy={signOut.isPending}
      onClick={() =>
        signOut.mutate(undefined, {
          onSuccess: () => void navigate("/login"),
          onError: () => toast("You are still signed in: the service did not answer.", { bad: true }),
        })
      }
    >
      Sign out <Untrusted text={session.name} />
    </Button>
  );
}

function Footer() {
  const { data: health } = useHealth();
  return (
    <footer className={styles.footer}>
      <span>
        Warpsmith <Untrusted text={health?.version} />
      </span>
      <a href="/docs">REST API</a>
      <Link to="/about">About and licences</Link>
    </footer>
  );
}
