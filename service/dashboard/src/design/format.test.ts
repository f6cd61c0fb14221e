import { describe, expect, it } from "vitest";
import {
  ago,
  bytes,
  count,
  duration,
  micros,
  moment,
  money,
  percent,
  rate,
  ratio,
  speedup,
  words,
} from "./format";

describe("numbers", () => {
  it("shows a speed-up with its interval, or without one", () => {
    expect(speedup(1.588, [1.249, 1.921])).toBe("1.59x [1.25, 1.92]");
    expect(speedup(1.588, null)).toBe("1.59x");
    expect(speedup(null, [1, 2])).toBe("–");
    expect(ratio(1234.5)).toBe("1,235x");
  });

  it.each([
    [0, "0 µs"],
    [0.82, "820 ns"],
    [12.34, "12.3 µs"],
    [4560, "4.56 ms"],
    [1_200_000, "1.20 s"],
    [null, "–"],
    [Number.NaN, "–"],
  ])("shows %s microseconds as %s", (us, text) => expect(micros(us)).toBe(text));

  it.each([
    [0, "0 s"],
    [0.42, "0.4 s"],
    [42, "42 s"],
    [200, "3 min 20 s"],
    [7500, "2 h 5 min"],
    [7200, "2 h"],
    [270_000, "3 d 3 h"],
  ])("shows %s seconds as %s", (seconds, text) => expect(duration(seconds)).toBe(text));

  it.each([
    [512, "512 B"],
    [49_152, "48 KiB"],
    [1_572_864, "1.50 MiB"],
    [2 ** 43, "8.00 TiB"],
  ])("shows %s bytes as %s", (size, text) => expect(bytes(size)).toBe(text));

  it("never shows an unknown price as free", () => {
    expect(money(null)).toBe("unknown");
    expect(money(0)).toBe("$0.00");
    expect(money(0.0031)).toBe("$0.0031");
    expect(money(1234.5)).toBe("$1,234.50");
  });

  it("shows shares, counts and rates", () => {
    expect(percent(0.873)).toBe("87 %");
    expect(percent(0.042)).toBe("4.2 %");
    expect([0, 0.0004, 0.0006].map(percent)).toEqual(["0 %", "<0.1 %", "0.1 %"]);
    expect(count(1_048_576)).toBe("1,048,576");
    expect(rate(3.35e12, "B/s")).toBe("3.35 TB/s");
    expect(words("memory_access")).toBe("memory access");
  });
});

describe("times", () => {
  it("tells past and future, in whole units", () => {
    expect(ago(1000, 1002)).toBe("just now");
    expect(ago(1000, 1330)).toBe("5 min ago");
    expect(ago(1000, 1000 + 3 * 86_400 + 5000)).toBe("3 d ago");
    expect(ago(1330, 1000)).toBe("in 5 min");
  });

  it("shows the moment in UTC", () => expect(moment(0)).toBe("1970-01-01 00:00:00 UTC"));
});
