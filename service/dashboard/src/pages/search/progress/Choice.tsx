import { Button } from "../../../design";
import styles from "./Progress.module.css";

/** A few options of which one holds, as buttons side by side. */
export function Choice<Option extends string>({
  label,
  options,
  labels,
  value,
  onChange,
}: {
  label: string;
  options: readonly Option[];
  labels: Readonly<Record<Option, string>>;
  value: Option | null;
  onChange: (option: Option) => void;
}) {
  return (
    <fieldset className={styles.choice}>
      <legend className="visually-hidden">{label}</legend>
      {options.map((option) => (
        <Button
          key={option}
          kind="quiet"
          aria-pressed={option === value}
          className={styles.option}
          onClick={() => onChange(option)}
        >
          {labels[option]}
        </Button>
      ))}
    </fieldset>
  );
}
