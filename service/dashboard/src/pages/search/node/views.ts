/** The tabs of a node, and the views in each; `?view=` names a view. */
export const GROUPS = [
  { key: "idea", label: "Idea", views: ["idea", "prompt"] },
  { key: "code", label: "Code", views: ["code", "diff"] },
  { key: "verdict", label: "Verdict", views: ["workloads", "compile"] },
  { key: "speed", label: "Speed", views: ["timing", "roofline", "profile"] },
  { key: "history", label: "History", views: ["history"] },
] as const;

type GroupKey = (typeof GROUPS)[number]["key"];
export type ViewKey = (typeof GROUPS)[number]["views"][number];

export const LABELS: Readonly<Record<ViewKey, string>> = {
  idea: "Idea",
  prompt: "Prompt",
  code: "Code",
  diff: "Diff",
  workloads: "Workloads",
  compile: "Compile",
  timing: "Timing",
  roofline: "Roofline",
  profile: "Profile",
  history: "History",
};

/** The view of that name; the idea where there is none. */
export function viewOf(name: string | null): ViewKey {
  return Object.keys(LABELS).find((key): key is ViewKey => key === name) ?? "idea";
}

/** The tab in which a view is. */
export function groupOf(view: ViewKey): (typeof GROUPS)[number] {
  return GROUPS.find(({ views }) => (views as readonly ViewKey[]).includes(view)) ?? GROUPS[0];
}

/** The first view of a tab. */
export function firstOf(group: GroupKey): ViewKey {
  return GROUPS.find(({ key }) => key === group)?.views[0] ?? "idea";
}
