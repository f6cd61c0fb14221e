import type { NodeReference } from "../../../api/node";
import type { NodeDocument } from "../../../api/queries";
import { Code, EmptyState, format, Time, Untrusted } from "../../../design";
import { originInWords, part, writtenBy } from "./idea";
import styles from "./Node.module.css";
import { NodeLine } from "./NodeLink";
import { Section } from "./Section";

const PROSE = [
  ["mechanism", "Mechanism"],
  ["evidence", "Evidence"],
  ["expected_gain", "Expected gain"],
  ["risk", "Risk"],
] as const;

/** The idea in prose, whose it is, and its place in the tree. */
export function IdeaView({ node }: { node: NodeDocument }) {
  const { idea } = node;
  const sketch = part(idea, "sketch");
  return (
    <div className={styles.columns}>
      <div className={styles.stack}>
        {idea ? (
          PROSE.map(([name, title]) => {
            const text = part(idea, name);
            return (
              text && (
                <Section key={name} title={title}>
                  <p className={styles.prose}>
                    <Untrusted text={text} />
                  </p>
                </Section>
              )
            );
          })
        ) : (
          <EmptyState title="No idea here">
            {node.seq === 0
              ? "This is the op's reference: what every candidate is checked against and compared with."
              : "The candidate was taken over as code, without prose."}
          </EmptyState>
        )}
        {sketch && (
          <Section title="Sketch">
            <Code code={sketch} label="Sketch of the idea" numbers={false} wrap />
          </Section>
        )}
      </div>
      <div className={styles.stack}>
        <Section title="Where it comes from">
          <Facts node={node} />
        </Section>
        <Section title="In the tree">
          <Relatives node={node} />
        </Section>
      </div>
    </div>
  );
}

function Facts({ node }: { node: NodeDocument }) {
  const author = writtenBy(node);
  return (
    <dl className={styles.facts}>
      <dt>Origin</dt>
      <dd>{originInWords(node)}</dd>
      {node.technique && (
        <>
          <dt>Technique</dt>
          <dd>
            <Untrusted text={format.words(node.technique)} />
          </dd>
        </>
      )}
      {author && (
        <>
          <dt>Code by</dt>
          <dd>
            <Untrusted text={author} />
          </dd>
        </>
      )}
      <dt>Round</dt>
      <dd>
        {node.round}
        {node.variant > 0 && `, candidate ${node.variant + 1} of this idea`}
      </dd>
      {node.repairs > 0 && (
        <>
          <dt>Repairs</dt>
          <dd>{node.repairs}</dd>
        </>
      )}
      <dt>Planned</dt>
      <dd>
        <Time at={node.created_at} />
      </dd>
    </dl>
  );
}

function Relatives({ node }: { node: NodeDocument }) {
  const { champion } = node;
  return (
    <dl className={styles.facts}>
      <dt>Parent</dt>
      <dd>{node.parent ? <NodeLine node={node.parent} /> : "None: the tree begins here"}</dd>
      <dt>Champion</dt>
      <dd>{champion ? champion.id === node.id ? "This node" : <NodeLine node={champion} /> : "None yet"}</dd>
      <dt>Children</dt>
      <dd>{node.children.length ? <Children nodes={node.children} /> : "None"}</dd>
    </dl>
  );
}

function Children({ nodes }: { nodes: readonly NodeReference[] }) {
  return (
    <ul className={styles.plainList}>
      {nodes.map((child) => (
        <li key={child.id}>
          <NodeLine node={child} />
        </li>
      ))}
    </ul>
  );
}
