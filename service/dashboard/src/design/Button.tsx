import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Link, type LinkProps } from "react-router";
import styles from "./Button.module.css";
import { classes } from "./classes";

type Kind = "primary" | "plain" | "quiet" | "danger";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: Kind;
  /** Shows that the action runs, and keeps it from being asked for twice. */
  busy?: boolean;
}

export function Button({
  kind = "plain",
  busy = false,
  className,
  disabled,
  children,
  ...rest
}: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      className={classes(styles.button, styles[kind], className)}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
    >
      {children}
    </button>
  );
}

interface IconButtonProps extends Omit<ButtonProps, "children" | "aria-label"> {
  label: string;
  icon: ReactNode;
}

/** A button that shows a sign alone; `label` is its name and its tooltip. */
export function IconButton({ label, icon, className, kind = "quiet", ...rest }: IconButtonProps) {
  return (
    <Button
      {...rest}
      kind={kind}
      className={classes(styles.icon, className)}
      aria-label={label}
      title={label}
    >
      <span aria-hidden="true">{icon}</span>
    </Button>
  );
}

/** A link within the page that looks like a button. */
export function ButtonLink({ kind = "plain", className, ...rest }: LinkProps & { kind?: Kind }) {
  return <Link {...rest} className={classes(styles.button, styles[kind], className)} />;
}
