// Any text is a value that can be copied, compared and written as text again, or an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "tests/fuzz/target.h"

using isobar::JsonComments;
using nlohmann::ordered_json;

FUZZ_TARGET(json) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const JsonComments comments : {JsonComments::refused, JsonComments::allowed}) {
    try {
      const auto value = isobar::parse_json<ordered_json>(text, "input", comments);
      const ordered_json copy = value;
      if (isobar::parse_json<ordered_json>(copy.dump(), "copy") != value) std::abort();
    } catch (const isobar::Error&) {
    }
  }
  return 0;
}
