import { Badge, Untrusted } from "../design";
import styles from "./Tags.module.css";

/** A search's tags, one after the other. */
export function Tags({ tags }: { tags: readonly string[] | undefined }) {
  if (!tags?.length) return null;
  return (
    <ul aria-label="Tags" className={styles.tags}>
      {tags.map((tag) => (
        <li key={tag}>
          <Badge tone="accent">
            <Untrusted text={tag} />
          </Badge>
        </li>
      ))}
    </ul>
  );
}
