// One check for the numbers of a command line: NaN passes every comparison with a bound, and infinity is not a number
// that an option can use.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

namespace isobar {

// Makes NaN and infinities a ParseError for every option of the command and its subcommands that takes an fp32 or fp64
// number. Call it after all options have been added.
inline void require_finite_numbers(CLI::App& command) {
  const auto check = [](const std::string& text) {
    return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : text + " is not a finite number";
  };
  for (CLI::Option* option : command.get_options())
    if (option->get_type_name().starts_with("FLOAT")) option->check(CLI::Validator(check, ""));
  for (CLI::App* subcommand : command.get_subcommands({})) require_finite_numbers(*subcommand);
}

}  // namespace isobar
