import { useStory } from "../../../api/queries";
import { Loading } from "../../../app/Page";
import { CopyButton, EmptyState, Untrusted, UntrustedList } from "../../../design";
import styles from "./Story.module.css";

/** The search in prose. */
export default function StoryTab({ searchId }: { searchId: string }) {
  const query = useStory(searchId);
  return (
    <Loading query={query}>
      {(story) => (
        <div className={styles.frame}>
          <div className={styles.actions}>
            <CopyButton text={story.markdown} label="Copy as Markdown" />
            <a href={`/v1/searches/${encodeURIComponent(searchId)}/pool`} download={`${searchId}.jsonl`}>
              Download the replies as a pool
            </a>
          </div>
          {story.sections.length === 0 && (
            <EmptyState title="Nothing to tell yet">The story grows as the search goes.</EmptyState>
          )}
          <article className={styles.story}>
            {story.sections.map(({ heading, paragraph, items }) => (
              <section key={heading} className={styles.section}>
                <h3>
                  <Untrusted text={heading} />
                </h3>
                {paragraph && (
                  <p>
                    <Untrusted text={paragraph} />
                  </p>
                )}
                {items.length > 0 && <UntrustedList texts={items} />}
              </section>
            ))}
          </article>
          <p className={styles.note}>
            A pool holds every reply of the search: with it the search is replayed without a model, on any
            machine.
          </p>
        </div>
      )}
    </Loading>
  );
}
