/** The command that starts judges of a target on a host that has its device, as the guide has it. */
export function judgeCommand(target: string | null | undefined): string {
  return `warpsmith worker --gpu ${target?.startsWith("cuda") ? "all" : "none"}`;
}
