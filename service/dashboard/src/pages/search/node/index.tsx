import { useId } from "react";
import { type ReportDocument, useReport } from "../../../api/node";
import { type NodeDocument, useNode, useSearch } from "../../../api/queries";
import { Loading } from "../../../app/Page";
import {
  Badge,
  Button,
  EmptyState,
  format,
  IconButton,
  StateBadge,
  Tabs,
  Time,
  toneOf,
  Untrusted,
} from "../../../design";
import { ENDED } from "../ended";
import { Choice } from "../progress/Choice";
import { isSlower } from "../tree/kinds";
import { NOT_TRIED } from "../tree/rows";
import { useView } from "../view";
import { Actions } from "./Actions";
import { CodeView } from "./CodeView";
import { CompileView } from "./CompileView";
import { DiffView } from "./DiffView";
import { HistoryView } from "./HistoryView";
import { IdeaView } from "./IdeaView";
import styles from "./Node.module.css";
import { ProfileView } from "./ProfileView";
import { PromptView } from "./PromptView";
import { RooflineView } from "./RooflineView";
import { isDuplicate, sentence } from "./sentence";
import { TimingView } from "./TimingView";
import { firstOf, GROUPS, groupOf, LABELS, type ViewKey, viewOf } from "./views";
import { WorkloadsView } from "./WorkloadsView";

interface NodePaneProps {
  searchId: string;
  nodeId: string;
  onClose: () => void;
}

/** One node with everything that is known of it, as wide as there is room. */
export default function NodePane({ searchId, nodeId, onClose }: NodePaneProps) {
  const query = useNode(nodeId);
  const foreign = query.data !== undefined && query.data.search_id !== searchId;
  const title = useId();
  return (
    <section className={styles.pane} aria-labelledby={title}>
      <div className={styles.head}>
        <h2 id={title} className={styles.title}>
          {query.data ? <Title node={query.data} /> : "Node"}
        </h2>
        <IconButton label="Close the node" icon="✕" onClick={onClose} />
      </div>
      {foreign ? (
        <EmptyState title="Not a node of this search" action={<Button onClick={onClose}>Close</Button>}>
          The address names a node of another search.
        </EmptyState>
      ) : (
        <Loading query={query}>{(node) => <Body key={node.id} node={node} />}</Loading>
      )}
    </section>
  );
}

function Title({ node }: { node: NodeDocument }) {
  return (
    <>
      <span className={styles.muted}>#{node.seq}</span>{" "}
      {node.title ? (
        <Untrusted text={node.title} />
      ) : node.seq === 0 ? (
        "Reference and its baselines"
      ) : (
        "Candidate"
      )}
    </>
  );
}

function Body({ node }: { node: NodeDocument }) {
  const { view, verdict, setView, setVerdict } = useView();
  const verdictId = node.verdicts.some(({ id }) => id === verdict) ? verdict : null;
  const judged = node.verdicts.length > 0;
  const standing = useReport(node.id, null, judged);
  const opened = useReport(node.id, verdictId, verdictId !== null);
  const report = verdictId === null ? standing : opened;
  const selected = viewOf(view);
  const group = groupOf(selected);
  return (
    <>
      <Outcome node={node} report={standing.data ?? null} />
      <Actions node={node} />
      <Tabs
        label="Views of the node"
        tabs={GROUPS}
        selected={group.key}
        onSelect={(key) => setView(firstOf(key))}
      >
        {group.views.length > 1 && (
          <div className={styles.choice}>
            <Choice<ViewKey>
              label={`Views of ${group.label.toLowerCase()}`}
              options={group.views}
              labels={LABELS}
              value={selected}
              onChange={setView}
            />
          </div>
        )}
        {verdictId !== null && OF_A_VERDICT.has(selected) && opened.data && (
          <OlderVerdict report={opened.data} onBack={() => setVerdict(null, selected)} />
        )}
        {selected === "idea" && <IdeaView node={node} />}
        {selected === "code" && <CodeView node={node} />}
        {selected === "diff" && <DiffView node={node} />}
        {selected === "prompt" && <PromptView node={node} />}
        {selected === "profile" && <ProfileView node={node} />}
        {selected === "history" && (
          <HistoryView
            node={node}
            shownId={report.data?.verdict_id ?? null}
            onVerdict={(id) => setVerdict(id === standing.data?.verdict_id ? null : id, "workloads")}
          />
        )}
        {OF_A_VERDICT.has(selected) &&
          (judged ? (
            <Loading query={report}>
              {(found) => (found ? <OfVerdict view={selected} report={found} /> : <NotJudged node={node} />)}
            </Loading>
          ) : (
            <NotJudged node={node} />
          ))}
      </Tabs>
    </>
  );
}

const OF_A_VERDICT = new Set(["compile", "workloads", "timing", "roofline"]);

function OfVerdict({ view, report }: { view: string; report: ReportDocument }) {
  switch (view) {
    case "compile":
      return <CompileView report={report} />;
    case "workloads":
      return <WorkloadsView report={report} />;
    case "timing":
      return <TimingView report={report} />;
    default:
      return <RooflineView report={report} />;
  }
}

/** Whether the node's search has ended, as far as that is read. */
function useEnded(node: NodeDocument): boolean {
  const search = useSearch(node.search_id);
  return search.data !== undefined && ENDED.has(search.data.state);
}

function NotJudged({ node }: { node: NodeDocument }) {
  const ended = useEnded(node);
  return (
    <EmptyState title={ended ? "Not judged" : "Not judged yet"}>
      {node.state === "closed" || ended
        ? `The ${node.state === "closed" ? "node was closed" : "search ended"} before the judge saw it.`
        : "The judge's verdict appears here as soon as there is one."}
    </EmptyState>
  );
}

/** What happened, before everything else. */
function Outcome({ node, report }: { node: NodeDocument; report: ReportDocument | null }) {
  const ended = useEnded(node);
  const untried = ended && node.state === "planned" ? NOT_TRIED : node.state;
  const state = isDuplicate(node) ? "duplicate" : (node.verdict ?? untried);
  return (
    <div className={styles.outcome} data-tone={isSlower(node) ? "warn" : toneOf(state)}>
      <div className={styles.row}>
        {isSlower(node) ? <Badge tone="warn">accepted, slower</Badge> : <StateBadge state={state} />}
        {node.best && <Badge tone="ok">champion</Badge>}
        {node.mark && <Badge tone={node.mark === "banned" ? "bad" : "accent"}>{node.mark}</Badge>}
        <span className={styles.muted}>
          {node.technique && (
            <>
              <Untrusted text={format.words(node.technique)} /> ·{" "}
            </>
          )}
          round {node.round}
          {node.language && (
            <>
              {" "}
              · <Untrusted text={node.language} />
            </>
          )}
        </span>
      </div>
      <p className={styles.sentence}>
        <Untrusted text={sentence(node, report, ended)} />
      </p>
    </div>
  );
}

function OlderVerdict({ report, onBack }: { report: ReportDocument; onBack: () => void }) {
  return (
    <div className={styles.older} role="status">
      <span>
        This is another verdict of the node: {format.words(report.level)}, {format.words(report.verdict)},{" "}
        <Time at={report.created_at} />.
      </span>
      <Button onClick={onBack}>Show the deciding verdict</Button>
    </div>
  );
}
