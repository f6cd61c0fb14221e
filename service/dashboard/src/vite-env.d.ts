/// <reference types="vite/client" />

declare module "virtual:licences" {
  const licences: readonly { name: string; version: string; licence: string; text: string }[];
  export default licences;
}
