import { type ReactNode, useEffect, useId, useRef } from "react";
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
}

/** A native modal dialog: the browser keeps focus within and gives it back. */
export function Dialog({ open, title, onClose, children, actions }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    if (open && element && !element.open) element.showModal();
    if (!open && element?.open) element.close();
  }, [open]);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape is the browser's own for a dialog
    <dialog
      ref={dialog}
      aria-labelledby={id}
      className={styles.dialog}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
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
