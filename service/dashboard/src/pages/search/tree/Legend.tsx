import { useEffect, useRef } from "react";
import { onThemeChange } from "../../../design";
import { drawGlyph } from "./glyphs";
import { type Kind, LOOKS, SPEEDS } from "./kinds";
import styles from "./Legend.module.css";
import { pagePalette } from "./palette";

const KINDS: readonly [Kind, string][] = [
  ["verified", "accepted, verified; larger is faster"],
  ["screened", "accepted, screened"],
  ["rejected", "rejected"],
  ["quarantined", "quarantined"],
  ["ambiguous", "ambiguous"],
  ["running", "running"],
  ["waiting", "waiting"],
  ["duplicate", "duplicate"],
  ["closed", "closed without a verdict"],
  ["reference", "reference"],
];

export function Legend() {
  return (
    <ul className={styles.legend} aria-label="Signs of the tree">
      {KINDS.map(([kind, text]) => (
        <li key={kind}>
          <GlyphSign kind={kind} />
          {text}
        </li>
      ))}
      {SPEEDS.map(({ color, word }) => (
        <li key={color}>
          <span className={styles.speed} style={{ background: `var(${color})` }} />
          {word}
        </li>
      ))}
      <li>
        <span className={styles.path} />
        path to the best
      </li>
      <li>
        <span className={styles.star}>★</span>
        the best
      </li>
    </ul>
  );
}

const SIDE = 16;

/** A kind's sign, by the code that draws the tree. */
export function GlyphSign({
  kind,
  color = LOOKS[kind].color,
  slower = false,
}: {
  kind: Kind;
  color?: `--${string}`;
  slower?: boolean;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const draw = () => {
      const ink = element.getContext("2d");
      if (!ink) return;
      const ratio = devicePixelRatio || 1;
      element.width = element.height = SIDE * ratio;
      ink.setTransform(ratio, 0, 0, ratio, 0, 0);
      ink.lineCap = ink.lineJoin = "round";
      const r = LOOKS[kind].quiet ? 4.5 : 6;
      drawGlyph(ink, kind, SIDE / 2, SIDE / 2, r, pagePalette(), true, color, slower);
    };
    draw();
    return onThemeChange(draw);
  }, [kind, color, slower]);
  return <canvas ref={canvas} className={styles.sign} />;
}
