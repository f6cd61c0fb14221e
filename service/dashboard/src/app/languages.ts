/** The languages of searches as `kernels_db/job/languages.py` has them; the first of a device is its default. */
export const LANGUAGES: Readonly<Record<string, { title: string; device: string }>> = {
  triton: { title: "Triton", device: "cuda" },
  cuda: { title: "CUDA", device: "cuda" },
  gluon: { title: "Gluon", device: "cuda" },
  cute: { title: "CuTe DSL", device: "cuda" },
  tilelang: { title: "TileLang", device: "cuda" },
  cpp: { title: "C++", device: "cpu" },
};

/** The languages for a type of device. */
export function languagesFor(device: string): readonly string[] {
  return Object.keys(LANGUAGES).filter((name) => LANGUAGES[name]?.device === device);
}
