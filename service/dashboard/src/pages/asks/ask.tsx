import { useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { Link, useParams } from "react-router";
import { useLive } from "../../api/live";
import { asProblem } from "../../api/problem";
import { type AskDocument, keys, useAsk } from "../../api/queries";
import { Loading, Page } from "../../app/Page";
import { ButtonLink, EmptyState, StateBadge, Time, Untrusted } from "../../design";
import { Answer } from "./Answer";
import styles from "./Asks.module.css";
import { kindOf } from "./kinds";
import { Outcome } from "./Outcome";
import { Prompt } from "./Prompt";
import { isOver } from "./states";

/** The page of one ask: its prompt, the answer, and what becomes of it. */
export default function AskPage() {
  const { id = "" } = useParams();
  const query = useAsk(id);
  const ask = query.data;
  useFollow(ask);
  if (query.error && asProblem(query.error).status === 404) {
    return (
      <Page title="No such ask">
        <EmptyState title="There is no ask of this id" action={<ButtonLink to="/asks">All asks</ButtonLink>}>
          It may belong to a search that was deleted, or the address was not copied whole.
        </EmptyState>
      </Page>
    );
  }
  const what = ask ? kindOf(ask.kind).what : "Ask";
  return (
    <Page
      title={ask ? `${what} for #${ask.seq} of ${ask.op_name}` : what}
      heading={ask ? `${what} for #${ask.seq}` : what}
      actions={<StateBadge state={ask?.state} />}
    >
      <Loading query={query}>
        {(data) => (
          <>
            <About ask={data} />
            <div className={styles.columns}>
              <Prompt ask={data} />
              <div className={styles.stack}>
                <Answer key={data.id} ask={data} />
                {data.state === "answered" && <Outcome ask={data} />}
              </div>
            </div>
          </>
        )}
      </Loading>
    </Page>
  );
}

/** Reads the ask again whenever something happens to its node, so that the verdict comes by itself. */
function useFollow(ask: AskDocument | undefined): void {
  const client = useQueryClient();
  const since = useRef(Date.now() / 1000);
  const over = ask && isOver(ask);
  useLive(ask?.search_id ?? "", over, (event) => {
    // The stream begins with the search's first event; what was before the page is in it.
    if (!ask || event.created_at < since.current - 10) return;
    if (event.node_id === ask.node_id || event.type.startsWith("search."))
      void client.invalidateQueries({ queryKey: keys.ask(ask.id) });
  });
}

function About({ ask }: { ask: AskDocument }) {
  return (
    <p className={styles.about}>
      <Link to={`/searches/${encodeURIComponent(ask.search_id)}?tab=asks`}>
        <Untrusted text={ask.op_name} />
      </Link>{" "}
      on <Untrusted text={ask.target} /> ·{" "}
      <Link to={`/searches/${encodeURIComponent(ask.search_id)}?node=${encodeURIComponent(ask.node_id)}`}>
        #{ask.seq} <Untrusted text={ask.title ?? "the reference"} />
      </Link>{" "}
      · asked <Time at={ask.created_at} />
      {ask.state === "open" && ask.expires_at != null && (
        <>
          {" "}
          · expires <Time at={ask.expires_at} />, and is then asked again
        </>
      )}
    </p>
  );
}
