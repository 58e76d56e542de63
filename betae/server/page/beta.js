// Densities of Beta distributions, as curves.

import { svg } from "./dom.js";

const POINTS = 41;
const TALLEST = 4; // densities above this are cut off

// Lanczos' approximation of ln Γ(x), for x > 0.
function logGamma(x) {
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
  const terms = [
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
  ];
  const shifted = x - 1;
  const base = shifted + 7.5;
  const sum = terms.reduce(
    (total, term, place) => total + term / (shifted + place + 1),
    0.99999999999980993,
  );
  return 0.5 * Math.log(2 * Math.PI) + (shifted + 0.5) * Math.log(base) - base + Math.log(sum);
}

export function density(alpha, beta, x) {
  const total = logGamma(alpha + beta) - logGamma(alpha) - logGamma(beta);
  return Math.exp(total + (alpha - 1) * Math.log(x) + (beta - 1) * Math.log(1 - x));
}

// The curves of some dimensions, in a field of the given size.
export function densities({ alpha, beta }, x, y, width, height) {
  const curves = alpha.map((first, dim) => {
    const points = Array.from({ length: POINTS }, (_, place) => {
      const at = (place + 0.5) / POINTS;
      const tall = Math.min(density(first, beta[dim], at), TALLEST) / TALLEST;
      return `${(x + at * width).toFixed(1)},${(y + height * (1 - tall)).toFixed(1)}`;
    });
    return svg("polyline", { points: points.join(" "), class: `density dim${dim % 4}` });
  });
  const floor = svg("path", { d: `M${x} ${y + height}h${width}`, class: "floor" });
  return [floor, ...curves];
}
