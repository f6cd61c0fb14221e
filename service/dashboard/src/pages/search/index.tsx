import { lazy, Suspense } from "react";
import { useParams } from "react-router";
import { useLive } from "../../api/live";
import { asProblem } from "../../api/problem";
import { type SearchDocument, useSearch } from "../../api/queries";
import { Loading, Page } from "../../app/Page";
import { ButtonLink, EmptyState, format, Skeleton, StateBadge, Tabs, Untrusted } from "../../design";
import { ENDED } from "./ended";
import { Header } from "./Header";
import { ConnectionNote, LiveBadge } from "./LiveBadge";
import { Split } from "./Split";
import { Keeping } from "./steer/Keeping";
import { Steering } from "./steer/Steering";
import { TABS, type TabKey, useView } from "./view";

const TreeTab = lazy(async () => ({ default: (await import("./tree/TreeTab")).TreeTab }));
const ListTab = lazy(async () => ({ default: (await import("./ListTab")).ListTab }));
const ProgressTab = lazy(() => import("./progress/ProgressTab"));
const MatteredTab = lazy(() => import("./mattered/MatteredTab"));
const StoryTab = lazy(() => import("./story/StoryTab"));
const SpecTab = lazy(() => import("./SpecTab"));
const AskList = lazy(() => import("../asks/AskList"));
const NodePane = lazy(() => import("./node"));

/** The page of one search: its header, tabs named by `?tab=`, and the node that `?node=` names beside them. */
export default function SearchPage() {
  const { id = "" } = useParams();
  const query = useSearch(id);
  const ended = query.data && ENDED.has(query.data.state);
  const live = useLive(id, ended);
  const name = query.data ? (query.data.name ?? query.data.op_name) : "Search";
  if (query.error && asProblem(query.error).status === 404) return <Unknown />;
  return (
    <Page
      title={query.data ? titleOf(query.data) : name}
      heading={<Untrusted text={name} />}
      actions={
        query.data && (
          <>
            <StateBadge state={query.data.state} />
            <LiveBadge state={live} />
            {!ended && <Steering search={query.data} />}
            <Keeping search={query.data} ended={Boolean(ended)} />
          </>
        )
      }
    >
      <ConnectionNote state={live} />
      <Loading query={query}>
        {(search) => (
          <>
            <Header search={search} />
            <Body search={search} />
          </>
        )}
      </Loading>
    </Page>
  );
}

/** In the browser's tab, the state and the best come first: there is room for little. */
function titleOf(search: Pick<SearchDocument, "best" | "state" | "op_name" | "name">): string {
  const score = search.best?.score;
  return [score == null ? null : format.ratio(score), search.state, search.name ?? search.op_name]
    .filter(Boolean)
    .join(" · ");
}

function Body({ search }: { search: SearchDocument }) {
  const { tab, nodeId, setTab, setNode } = useView();
  const close = () => setNode(null);
  const tabs = TABS.filter(({ key }) => key !== "asks" || search.provider === "agent" || tab === "asks");
  return (
    <Split
      onClose={close}
      pane={
        nodeId && (
          <Suspense fallback={<Skeleton lines={6} />}>
            <NodePane key={nodeId} searchId={search.id} nodeId={nodeId} onClose={close} />
          </Suspense>
        )
      }
    >
      <Tabs label="Views of the search" tabs={tabs} selected={tab} onSelect={setTab}>
        <Suspense fallback={<Skeleton lines={6} />}>
          <Panel tab={tab} search={search} />
        </Suspense>
      </Tabs>
    </Split>
  );
}

function Panel({ tab, search }: { tab: TabKey; search: SearchDocument }) {
  switch (tab) {
    case "tree":
      return <TreeTab searchId={search.id} />;
    case "list":
      return <ListTab searchId={search.id} />;
    case "progress":
      return <ProgressTab searchId={search.id} />;
    case "mattered":
      return (
        <MatteredTab searchId={search.id} ended={ENDED.has(search.state)} updatedAt={search.updated_at} />
      );
    case "asks":
      return <AskList searchId={search.id} />;
    case "story":
      return <StoryTab searchId={search.id} />;
    case "spec":
      return <SpecTab search={search} />;
  }
}

function Unknown() {
  return (
    <Page title="No such search">
      <EmptyState title="There is no search of this id" action={<ButtonLink to="/">All searches</ButtonLink>}>
        It may have been deleted, or the address was not copied whole. Kernels that it kept stay among the
        kernels.
      </EmptyState>
    </Page>
  );
}
