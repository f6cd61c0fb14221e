import { type ReactNode, useId, useLayoutEffect, useRef } from "react";
import { IconButton } from "./Button";
import styles from "./Dialog.module.css";

interface DialogProps {
  open: boolean;
  title: ReactNode;
  /** Also called for Escape and for a press outside. */
  onClose: () => void;
  children: ReactNode;
  /** The buttons at the foot. */
  actions?: ReactNode;
  /** As large as the window: what is within may grow to its height. */
  whole?: boolean;
}

/** A native modal dialog: the browser keeps focus within and gives it back. */
export function Dialog({ open, title, onClose, children, actions, whole }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before it leaves the page: the browser gives the focus back to where it was only by closing it there.
  useLayoutEffect(() => {
    const element = dialog.current;
    if (!open || element === null) return;
    element.showModal();
    return () => element.close();
  }, [open]);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      className={styles.dialog}
      data-whole={whole || undefined}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      // Escape closes the dialog, and not also what it was opened from.
      onKeyDown={(event) => event.key === "Escape" && event.stopPropagation()}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      {open && (
        <div className={styles.body}>
          <div className={styles.head}>
            <h2 id={id}>{title}</h2>
            <IconButton label="Close" icon="✕" onClick={onClose} />
          </div>
          {children}
          {actions && <div className={styles.actions}>{actions}</div>}
        </div>
      )}
    </dialog>
  );
}
