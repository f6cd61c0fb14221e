import { type ComponentPropsWithRef, createContext, type ReactNode, use, useId } from "react";
import { classes } from "./classes";
import styles from "./Field.module.css";

interface FieldIds {
  control: string;
  hint: string | undefined;
  error: string | undefined;
}

const FieldContext = createContext<FieldIds | null>(null);

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  /** What is wrong with the value; the control is then marked invalid and described by it. */
  error?: ReactNode;
  children: ReactNode;
}

/** A label, one control and what is to be said of it. The control inside takes its id from here. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const ids: FieldIds = {
    control: id,
    hint: hint ? `${id}-hint` : undefined,
    error: error ? `${id}-error` : undefined,
  };
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={styles.label}>
        {label}
      </label>
      <FieldContext value={ids}>{children}</FieldContext>
      {hint && (
        <div id={ids.hint} className={styles.hint}>
          {hint}
        </div>
      )}
      {error && (
        <div id={ids.error} className={styles.error}>
          {error}
        </div>
      )}
    </div>
  );
}

/** What ties a control of one's own to the Field around it. */
function useFieldControl() {
  const ids = use(FieldContext);
  if (!ids) return {};
  const described = [ids.error, ids.hint].filter(Boolean).join(" ");
  return {
    id: ids.control,
    ...(described && { "aria-describedby": described }),
    ...(ids.error && { "aria-invalid": true as const }),
  };
}

export function TextInput({ className, ...rest }: ComponentPropsWithRef<"input">) {
  return (
    <input type="text" {...useFieldControl()} {...rest} className={classes(styles.control, className)} />
  );
}

export function TextArea({ className, ...rest }: ComponentPropsWithRef<"textarea">) {
  return (
    <textarea rows={4} {...useFieldControl()} {...rest} className={classes(styles.control, className)} />
  );
}

export function Select({ className, ...rest }: ComponentPropsWithRef<"select">) {
  return <select {...useFieldControl()} {...rest} className={classes(styles.control, className)} />;
}

export function Checkbox({ label, ...rest }: ComponentPropsWithRef<"input"> & { label: ReactNode }) {
  return (
    <label className={styles.checkbox}>
      <input {...rest} type="checkbox" />
      {label}
    </label>
  );
}
