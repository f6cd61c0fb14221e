import { useState } from "react";
import { Select } from "../design";
import { readTheme, setTheme, type Theme } from "../design/theme";
import styles from "./ThemeSwitch.module.css";

const THEMES: readonly { value: Theme; label: string }[] = [
  { value: "system", label: "Auto" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
];

export function ThemeSwitch() {
  const [theme, setShown] = useState(readTheme);
  return (
    <Select
      aria-label="Colour theme"
      className={styles.switch}
      value={theme}
      onChange={({ target }) => {
        const chosen = THEMES.find(({ value }) => value === target.value)?.value ?? "system";
        setTheme(chosen);
        setShown(chosen);
      }}
    >
      {THEMES.map(({ value, label }) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </Select>
  );
}
