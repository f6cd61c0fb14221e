/** The views of a node, as `?view=` names them. */
export const VIEWS = [
  { key: "idea", label: "Idea" },
  { key: "code", label: "Code" },
  { key: "diff", label: "Diff" },
  { key: "prompt", label: "Prompt" },
  { key: "compile", label: "Compile" },
  { key: "workloads", label: "Workloads" },
  { key: "timing", label: "Timing" },
  { key: "roofline", label: "Roofline" },
  { key: "profile", label: "Profile" },
  { key: "history", label: "History" },
] as const;

type ViewKey = (typeof VIEWS)[number]["key"];

/** The view of that name; the idea where there is none. */
export function viewOf(name: string | null): ViewKey {
  return VIEWS.find(({ key }) => key === name)?.key ?? "idea";
}
