import { Fragment } from "react";
import { Dialog } from "../../../design";
import styles from "./HelpDialog.module.css";

const KEYS: readonly [string[], string][] = [
  [["←", "→"], "to the parent, to a child; → opens what is collapsed"],
  [["↑", "↓"], "to the node above or below of the same depth"],
  [["Enter"], "open the node"],
  [["Space"], "collapse or expand what is below the node"],
  [["Home"], "to the root"],
  [["B"], "to the best node"],
  [["F"], "the whole tree"],
  [["W"], "fill the window with the tree; again, or Escape, for the page"],
  [["+", "-"], "nearer, farther"],
  [["Shift+←", "→", "↑", "↓"], "move the view"],
  [["/"], "find: a title, a technique, #12, accepted, pinned"],
  [["N", "Shift+N"], "to the next match, to the one before"],
  [["?"], "this help"],
];

/** The keys of the tree, and what pointers do. */
export function HelpDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog open={open} onClose={onClose} title="Keys of the tree">
      <dl className={styles.keys}>
        {KEYS.map(([keys, text]) => (
          <Fragment key={text}>
            <dt>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </Fragment>
        ))}
      </dl>
      <p className={styles.note}>
        The keys work while the tree has the focus. The wheel or two fingers zoom, dragging moves the view, a
        press opens a node and two presses collapse it. The small map moves the view too.
      </p>
    </Dialog>
  );
}
