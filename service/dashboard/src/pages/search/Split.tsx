import { type CSSProperties, type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { useMedia } from "../../design/media";
import { clampPane, keepPaneWidth, LEAST_PANE, readPaneWidth } from "./pane";
import styles from "./Search.module.css";

const STEP = 32;

/** What is shown, with a node beside it: a pane whose width can be changed, or a sheet over it on narrow screens. */
export function Split({
  children,
  pane,
  onClose,
}: {
  children: ReactNode;
  pane: ReactNode | null;
  onClose: () => void;
}) {
  const wide = useMedia("(min-width: 960px)");
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(readPaneWidth);

  function resize(to: number) {
    const next = clampPane(to, frame.current?.clientWidth ?? 0);
    setWidth(next);
    keepPaneWidth(next);
  }

  function onKeyDown(event: KeyboardEvent) {
    const by = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    resize(width + by);
  }

  // The same element around the children in every case: a tree that is drawn stays where it is.
  const beside = wide && pane !== null;
  return (
    <div
      ref={frame}
      className={beside ? styles.split : undefined}
      style={{ "--pane": `min(${width}px, 70%)` } as CSSProperties}
    >
      <div>{children}</div>
      {beside && (
        <>
          {/* biome-ignore lint/a11y/useSemanticElements: an <hr> cannot be moved */}
          <div
            role="separator"
            aria-label="Width of the node"
            aria-orientation="vertical"
            aria-valuenow={width}
            aria-valuemin={LEAST_PANE}
            tabIndex={0}
            className={styles.separator}
            onKeyDown={onKeyDown}
            onPointerDown={(event) => event.currentTarget.setPointerCapture(event.pointerId)}
            onPointerMove={(event) => {
              const box = frame.current?.getBoundingClientRect();
              if (box && event.currentTarget.hasPointerCapture(event.pointerId))
                resize(box.right - event.clientX);
            }}
          />
          {/* biome-ignore lint/a11y/noStaticElementInteractions: Escape closes what the pane holds, from anywhere in it */}
          <div
            className={styles.pane}
            onKeyDown={(event) => event.key === "Escape" && !event.defaultPrevented && onClose()}
          >
            {pane}
          </div>
        </>
      )}
      {!wide && pane !== null && <Sheet onClose={onClose}>{pane}</Sheet>}
    </div>
  );
}

/** Over the whole page; the browser keeps focus within and gives it back. */
function Sheet({ children, onClose }: { children: ReactNode; onClose: () => void }) {
  const sheet = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const { current } = sheet;
    if (current && !current.open) current.showModal();
    return () => current?.close();
  }, []);
  return (
    <dialog
      ref={sheet}
      aria-label="Node"
      className={styles.sheet}
      onCancel={(event) => {
        // A dialog within the sheet closes itself; its event comes past here too.
        if (event.target !== sheet.current) return;
        event.preventDefault();
        onClose();
      }}
    >
      {children}
    </dialog>
  );
}
