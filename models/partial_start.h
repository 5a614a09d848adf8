// A network that begins with what fits of the weights of another one (isobar train --init-partial): with other
// channels, on another grid, with other patches.
//
// Each tensor is taken as it is, changed by a rule of the network (NetworkRecipe::start_of), or keeps its initial
// values.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/parameters.h"
#include "models/network.h"
#include "models/tensor_start.h"

namespace isobar {

class PartialStart {
 public:
  // parameters: of the network, on any device; only names and shapes are read. theirs: of the network that the file's
  // weights are of; empty where the file does not say. Throws Error if no tensor of the file fits, for a number that is
  // not finite, for channels of one name in different units, and for rows that run the other way.
  PartialStart(const std::filesystem::path& file, const Parameters& parameters, const NetworkRecipe& network,
               const FieldsMeaning& theirs, const FieldsMeaning& ours);

  // For people: one line for each tensor, and one for those of the file that are not used.
  const std::vector<std::string>& lines() const { return lines_; }

  // Sets the weights that this rank holds; those that keep their initial values have them already.
  void apply(Parameters& parameters) const;

 private:
  std::filesystem::path file_;
  std::vector<std::pair<std::string, TensorStart>> starts_;  // by name, in the order of Parameters::named()
  std::vector<std::string> lines_;
};

}  // namespace isobar
