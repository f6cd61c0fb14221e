const PATHS = {
  minus: "M3 8h10",
  plus: "M3 8h10M8 3v10",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  fill: "M9.500 2.500h4v4M6.500 13.500h-4v-4M13.500 2.500l-4 4M2.500 13.500l4-4",
  star: "M8 2.2l1.8 3.7 4 .6-2.9 2.8.7 4L8 11.4l-3.6 1.9.7-4L2.2 6.500l4-.6z",
  collapse: "M3 8h10M8 1.500v4M6 4l2 2 2-2M8 14.500v-4M6 12l2-2 2 2",
  expand: "M3 8h10M8 5.500v-4M6 3.500l2-2 2 2M8 10.500v4M6 12.500l2 2 2-2",
  help: "M5.8 6a2.2 2.2 0 1 1 3 2.100c-.6.3-.8.7-.8 1.400M8 12.200v.1",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
} as const;

/** A sign in lines, in the colour of the text around it. */
export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false" display="block">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
