#include "data/maps/colormap.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace isobar {
namespace {

// Every fifth of turbo's 256 colours; linear interpolation is exact to one step of 255.
constexpr Rgb kTurbo[] = {
    {48, 18, 59},   {54, 33, 95},    {59, 47, 128},  {63, 62, 156},  {66, 75, 181},  {69, 89, 203},  {70, 102, 221},
    {71, 115, 235}, {70, 128, 246},  {69, 140, 253}, {64, 153, 255}, {56, 165, 251}, {47, 178, 244}, {39, 190, 233},
    {31, 201, 221}, {26, 212, 208},  {24, 221, 194}, {26, 228, 182}, {34, 235, 170}, {47, 241, 155}, {63, 246, 138},
    {82, 250, 122}, {101, 253, 105}, {121, 254, 89}, {139, 255, 75}, {156, 254, 64}, {169, 251, 57}, {183, 247, 53},
    {195, 241, 52}, {208, 234, 52},  {219, 226, 54}, {229, 217, 56}, {238, 207, 58}, {245, 197, 58}, {250, 186, 57},
    {253, 174, 53}, {254, 161, 48},  {254, 147, 42}, {252, 132, 35}, {249, 117, 29}, {244, 102, 23}, {239, 88, 17},
    {232, 75, 12},  {225, 65, 9},    {216, 55, 6},   {206, 45, 4},   {195, 37, 3},   {183, 29, 2},   {169, 22, 1},
    {155, 15, 1},   {139, 9, 2},     {122, 4, 3}};

constexpr Rgb kBlueWhiteRed[] = {{5, 48, 97},     {33, 102, 172},  {67, 147, 195},  {146, 197, 222},
                                 {209, 229, 240}, {247, 247, 247}, {253, 219, 199}, {244, 165, 130},
                                 {214, 96, 77},   {178, 24, 43},   {103, 0, 31}};

Rgb interpolate(std::span<const Rgb> colors, double share) {
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(colors.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(at), colors.size() - 2);
  const Rgb a = colors[below], b = colors[below + 1];
  const auto mix = [t = at - static_cast<double>(below)](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + t * (to - from)));
  };
  return {mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)};
}

}  // namespace

Rgb turbo(double share) {
  return interpolate(kTurbo, share);
}

Rgb blue_white_red(double share) {
  return interpolate(kBlueWhiteRed, share);
}

}  // namespace isobar
