// A file of tests/golden/ (tests/golden/README.md describes its contents).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "tests/harness/places.h"

namespace isobar::testing {

inline const std::string kGolden = source_path("tests/golden/");

class Golden {
 public:
  explicit Golden(const std::string& name) : file_(kGolden + name + ".safetensors") {}

  std::vector<double> values(const std::string& name) const {
    const TensorBytes& tensor = file_.at(name);
    std::vector<double> out(static_cast<std::size_t>(elements_of(tensor.info)));
    copy_elements(tensor, DType::fp64, reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<float> floats(const std::string& name) const {
    const std::vector<double> wide = values(name);
    return {wide.begin(), wide.end()};
  }
  Shape shape(const std::string& name) const { return file_.at(name).info.shape; }
  nlohmann::json metadata(const std::string& key) const { return nlohmann::json::parse(file_.metadata().at(key)); }
  std::vector<std::string> parameters() const { return metadata("parameters").get<std::vector<std::string>>(); }

 private:
  SafetensorsFile file_;
};

}  // namespace isobar::testing
