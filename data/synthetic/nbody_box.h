// A synthetic universe: a pair of periodic boxes of N^3 points, as dark matter (Nbody) and gas (Hydro) that goes with
// it. It is computed from a seed, without any simulation. The gas follows from the matter around a point, and not from
// the matter at that point alone: a network has something to learn from volumes.
//
//   matter  A Gaussian random field δ with the spectrum q/(1 + q²)^1.7 · exp(-k²), q = k/(2π/24), in units of points.
//           Its displacement is the gradient of its potential, ψ(k) = i·k/k²·δ(k), scaled to 1.6 points along each
//           axis. A particle of every point moves by ψ, and is shared by the 8 points around its place: density ρ of
//           mean 1, and momentum ρ·v of particles whose velocity is ψ (Zel'dovich's approximation).
//   gas     ρ_s is ρ smoothed by a Gaussian of s points. Pressure smooths more where it is dense:
//           ρ_gas = (1 - m)·ρ_1 + m·ρ_2.5,  m = ρ_1/(1 + ρ_1);  v_gas = (ρ·v)_1.5 / ρ_1.5
//           T = ρ_gas^0.6 · (1 + 4·max(0, -div v_gas)): compression heats
//
//   Nbody   ln(max(ρ, 0.01))/14 and v/6.4, three components along D, H, W
//   Hydro   ln(max(ρ_gas, 0.01))/14, v_gas/6.4, ln(max(T, 0.02))/7
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

struct NbodyBox {
  std::vector<float> nbody, hydro;  // [4, N, N, N], [5, N, N, N]
};

// Error unless N is a power of two. The numbers do not depend on `threads` (0: as many as there are cores).
NbodyBox make_nbody_box(std::int64_t n, std::uint64_t seed, int threads);

struct NbodyOptions {
  std::string out = {};    // folder; created if needed
  std::int64_t box = 128;  // points along each axis
  std::uint64_t seed = 0;
  int threads = 0;
};

// Writes out/train/box.h5 and out/valid/box.h5, of two universes, with the datasets Nbody and Hydro. Each file is
// complete or does not exist. Error, before anything is computed, for a box that is no power of two from 8 to 512, and
// if the disk has no room.
void write_nbody_boxes(const NbodyOptions& options);

}  // namespace isobar
