import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Roofline } from "../../../api/node";
import { BandwidthPlot } from "./BandwidthPlot";

const point = { seq: null, node_id: null, gflops: null, limit_fraction: 0.5 };
const roofline: Roofline = {
  bytes: 4e6,
  operations: null,
  intensity: null,
  arithmetic: "float32",
  bandwidth_gbs: 40,
  gflops: null,
  limit_us: 100,
  limit_by: "bytes",
  points: [
    { ...point, kind: "node", contender: "candidate", time_us: 200, gbs: 20 },
    { ...point, kind: "baseline", contender: "eager", time_us: 400, gbs: 10 },
  ],
};

it("draws an op without operations under the device's bandwidth", () => {
  render(<BandwidthPlot roofline={roofline} peak={40} title="large" name={({ contender }) => contender} />);
  const drawn = screen.getByRole("figure", { name: /Bandwidths of large/ });
  expect(drawn).toHaveTextContent("candidate");
  expect(drawn).toHaveTextContent("eager");
  expect(drawn).toHaveTextContent("peak");
});
