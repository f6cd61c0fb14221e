import { useLayoutEffect, useRef, useState } from "react";

/** An element, and whether it is at least so many pixels wide. */
export function useWide(pixels: number) {
  const element = useRef<HTMLDivElement>(null);
  const [wide, setWide] = useState(false);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current || typeof ResizeObserver === "undefined") return;
    const measure = () => setWide(current.clientWidth >= pixels);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, [pixels]);
  return [element, wide] as const;
}
