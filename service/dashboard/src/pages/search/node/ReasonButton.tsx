import { type ReactNode, useId } from "react";
import { Button, useToast } from "../../../design";
import styles from "./Node.module.css";

interface ReasonButtonProps {
  /** Why the action cannot be had now; it stays reachable, and pressing it says so. */
  reason: string | null;
  onClick: () => void;
  busy?: boolean;
  pressed?: boolean;
  children: ReactNode;
}

/** A button that, where it does nothing, says why. */
export function ReasonButton({ reason, onClick, busy = false, pressed, children }: ReasonButtonProps) {
  const id = useId();
  const toast = useToast();
  if (reason === null) {
    return (
      <Button onClick={onClick} busy={busy} aria-pressed={pressed}>
        {children}
      </Button>
    );
  }
  return (
    <>
      <Button
        aria-disabled="true"
        aria-describedby={id}
        aria-pressed={pressed}
        title={reason}
        className={styles.cannot}
        onClick={() => toast(reason)}
      >
        {children}
      </Button>
      <span id={id} className="visually-hidden">
        {reason}
      </span>
    </>
  );
}
