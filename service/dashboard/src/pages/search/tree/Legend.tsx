import { useEffect, useRef } from "react";
import { onThemeChange } from "../../../design";
import { drawGlyph } from "./glyphs";
import { type Kind, LOOKS } from "./kinds";
import styles from "./Legend.module.css";
import { pagePalette } from "./palette";

const KINDS: readonly [Kind, string][] = [
  ["accepted", "accepted; larger is faster"],
  ["rejected", "rejected"],
  ["quarantined", "quarantined"],
  ["ambiguous", "ambiguous"],
  ["running", "running"],
  ["waiting", "waiting"],
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
      <li>
        <span className={styles.path} />
        path to the best
      </li>
    </ul>
  );
}

const SIDE = 16;

/** A kind's sign, by the code that draws the tree. */
export function GlyphSign({ kind }: { kind: Kind }) {
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
      drawGlyph(ink, kind, SIDE / 2, SIDE / 2, r, pagePalette(), true);
    };
    draw();
    return onThemeChange(draw);
  }, [kind]);
  return <canvas ref={canvas} className={styles.sign} />;
}
