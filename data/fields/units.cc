#include "data/fields/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <utility>

namespace isobar {
namespace {

using Factors = std::map<std::string, int>;  // symbol -> power
using Words = std::map<std::string, std::string>;

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string found_in(const Words& words, const std::string& word) {
  const auto found = words.find(word);
  return found == words.end() ? "" : found->second;
}

// Replaces characters beyond ASCII, and "**" by "^".
std::string in_ascii(std::string text) {
  static const std::pair<const char*, const char*> signs[] = {
      {"°", "deg"}, {"¹", "1"}, {"²", "2"}, {"³", "3"}, {"⁴", "4"}, {"⁻", "-"}, {"·", " "}, {"⋅", " "}, {"**", "^"}};
  for (const auto& [sign, plain] : signs)
    for (std::size_t at = text.find(sign); at != std::string::npos; at = text.find(sign))
      text.replace(at, std::string(sign).size(), plain);
  return text;
}

// Units that are words, not products; in lower case.
std::string whole_name(const std::string& text) {
  static const Words words = {{"c", "degC"},
                              {"degc", "degC"},
                              {"deg c", "degC"},
                              {"celsius", "degC"},
                              {"degree c", "degC"},
                              {"degrees c", "degC"},
                              {"deg_c", "degC"},
                              {"degree celsius", "degC"},
                              {"deg celsius", "degC"},
                              {"degrees celsius", "degC"},
                              {"degree_celsius", "degC"},
                              {"degrees_celsius", "degC"},
                              {"degk", "K"},
                              {"deg k", "K"},
                              {"deg_k", "K"},
                              {"degree kelvin", "K"},
                              {"degrees kelvin", "K"},
                              {"degree_kelvin", "K"},
                              {"degrees_kelvin", "K"},
                              {"%", "%"},
                              {"percent", "%"},
                              {"per cent", "%"},
                              {"pct", "%"},
                              {"1", "1"},
                              {"-", "1"},
                              {"~", "1"},
                              {"(0 - 1)", "1"},
                              {"(0-1)", "1"},
                              {"dimensionless", "1"},
                              {"unitless", "1"},
                              {"fraction", "1"}};
  return found_in(words, lower(text));
}

// One factor's symbol, from a symbol or a word.
std::string symbol_of(const std::string& name) {
  static const Words words = {
      {"metre", "m"},         {"meter", "m"},       {"second", "s"},  {"sec", "s"},        {"kilogram", "kg"},
      {"kelvin", "K"},        {"pascal", "Pa"},     {"joule", "J"},   {"watt", "W"},       {"newton", "N"},
      {"hectopascal", "hPa"}, {"mbar", "hPa"},      {"mb", "hPa"},    {"millibar", "hPa"}, {"gram", "g"},
      {"millimetre", "mm"},   {"millimeter", "mm"}, {"hour", "h"},    {"hr", "h"},         {"day", "d"},
      {"degree", "deg"},      {"radian", "rad"},    {"degc", "degC"}, {"celsius", "degC"}, {"percent", "%"}};
  std::string word = lower(name);
  if (const std::string symbol = found_in(words, word); !symbol.empty()) return symbol;
  if (word.size() > 2 && word.back() == 's') word.pop_back();
  const std::string symbol = found_in(words, word);
  return symbol.empty() ? name : symbol;
}

void multiply(Factors& product, const std::string& symbol, int power) {
  static const std::map<std::string, Factors> derived = {{"Pa", {{"kg", 1}, {"m", -1}, {"s", -2}}},
                                                         {"N", {{"kg", 1}, {"m", 1}, {"s", -2}}},
                                                         {"J", {{"kg", 1}, {"m", 2}, {"s", -2}}},
                                                         {"W", {{"kg", 1}, {"m", 2}, {"s", -3}}}};
  const auto base = derived.find(symbol);
  if (base == derived.end()) {
    product[symbol] += power;
  } else {
    for (const auto& [part, part_power] : base->second) product[part] += part_power * power;
  }
}

// Reads the power at text[at], as in "s-1", "s^-1", "m2"; 1 if there is none.
int read_power(const std::string& text, std::size_t& at) {
  std::size_t begin = at;
  if (begin < text.size() && text[begin] == '^') ++begin;
  const bool negative = begin < text.size() && text[begin] == '-';
  if (begin < text.size() && (text[begin] == '-' || text[begin] == '+')) ++begin;
  if (begin == text.size() || !is_digit(text[begin])) return 1;
  int power = 0;
  for (; begin < text.size() && is_digit(text[begin]); ++begin) power = std::min(10 * power + (text[begin] - '0'), 99);
  at = begin;
  return negative ? -power : power;
}

// A product of powers: "kg m**-2", "m2/s2", "J/kg/K", "metres per second".
Factors factors_of(const std::string& text) {
  Factors product;
  int sign = 1;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (is_digit(text[at])) {
      while (at < text.size() && is_digit(text[at])) ++at;
    } else {
      while (at < text.size() && std::string(" \t*/.^+-0123456789").find(text[at]) == std::string::npos) ++at;
    }
    if (at == begin) {  // a separator between two factors
      if (text[at++] == '/') sign = -1;
      continue;
    }
    const std::string name = text.substr(begin, at - begin);
    if (name == "per") {
      sign = -1;
      continue;
    }
    const int power = read_power(text, at);
    if (name != "1") multiply(product, symbol_of(name), sign * power);
    sign = 1;
  }
  std::erase_if(product, [](const auto& factor) { return factor.second == 0; });
  return product;
}

// One spelling for each unit.
std::string canonical(const std::string& unit) {
  const std::string text = trimmed(in_ascii(unit));
  if (const std::string name = whole_name(text); !name.empty()) return name;
  if (text.find('(') != std::string::npos) return text;
  std::string result;
  for (const auto& [symbol, power] : factors_of(text)) result += symbol + "^" + std::to_string(power) + " ";
  if (result.ends_with("^1 ") && std::ranges::count(result, ' ') == 1) result.resize(result.size() - 3);
  return result.empty() ? "1" : result;
}

// For z500 and its like, by the standard atmosphere; near the ground every mean is accepted.
bool can_be_geopotential(const std::string& variable, double mean) {
  constexpr double kGravity = 9.80665, kSeaLevel = 1013.25, kNearGround = 800;  // hPa
  const double level = std::strtod(variable.substr(variable.find_last_not_of("0123456789") + 1).c_str(), nullptr);
  if (level <= 0 || level > kNearGround) return true;
  const double expected = kGravity * 44330 * (1 - std::pow(level / kSeaLevel, 0.1903));
  return mean > 0.5 * expected && mean < 2 * expected;
}

}  // namespace

bool same_unit(const std::string& a, const std::string& b) {
  return a == b || canonical(a) == canonical(b);
}

std::string known_unit(const std::string& variable) {
  static const Words surface = {{"u10", "m/s"},
                                {"v10", "m/s"},
                                {"10u", "m/s"},
                                {"10v", "m/s"},
                                {"u10m", "m/s"},
                                {"v10m", "m/s"},
                                {"10m_u_component_of_wind", "m/s"},
                                {"10m_v_component_of_wind", "m/s"},
                                {"t2m", "K"},
                                {"2t", "K"},
                                {"d2m", "K"},
                                {"2d", "K"},
                                {"skt", "K"},
                                {"sst", "K"},
                                {"2m_temperature", "K"},
                                {"2m_dewpoint_temperature", "K"},
                                {"skin_temperature", "K"},
                                {"sea_surface_temperature", "K"},
                                {"sp", "Pa"},
                                {"msl", "Pa"},
                                {"mslp", "Pa"},
                                {"surface_pressure", "Pa"},
                                {"mean_sea_level_pressure", "Pa"},
                                {"tcwv", "kg/m2"},
                                {"total_column_water_vapour", "kg/m2"}};
  static const Words levels = {{"u", "m/s"},
                               {"v", "m/s"},
                               {"t", "K"},
                               {"z", "m2/s2"},
                               {"r", "%"},
                               {"u_component_of_wind_", "m/s"},
                               {"v_component_of_wind_", "m/s"},
                               {"temperature_", "K"},
                               {"geopotential_", "m2/s2"},
                               {"relative_humidity_", "%"}};
  const std::string name = lower(variable);
  if (const std::string unit = found_in(surface, name); !unit.empty()) return unit;
  const std::size_t level = name.find_last_not_of("0123456789") + 1;  // splits "t" from "850"
  return level == 0 || level == name.size() ? "" : found_in(levels, name.substr(0, level));
}

bool can_be_in_known_unit(const std::string& variable, double mean) {
  // Wide enough for every level, region and season.
  static const std::map<std::string, std::array<double, 2>> bounds = {
      {"K", {150, 400}}, {"Pa", {3e4, 1.2e5}}, {"m/s", {-150, 150}}, {"%", {-5, 150}}, {"kg/m2", {-1, 150}}};
  const std::string unit = known_unit(variable);
  if (unit == "m2/s2") return can_be_geopotential(variable, mean);
  const auto found = bounds.find(unit);
  return found == bounds.end() || (mean >= found->second[0] && mean <= found->second[1]);
}

std::string shown_unit(const std::string& variable, const std::string& unit) {
  const std::string known = known_unit(variable);
  return !unit.empty() && same_unit(unit, known) ? known : unit;
}

}  // namespace isobar
