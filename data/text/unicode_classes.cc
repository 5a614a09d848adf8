#include "data/text/unicode_classes.h"

#include <algorithm>
#include <vector>

namespace isobar {

const UnicodeClass* unicode_classes() {
  static const std::vector<UnicodeClass> classes = [] {
    std::vector<UnicodeClass> all(0x110000, UnicodeClass::other);
    for (const UnicodeRange& range : unicode_ranges())
      std::fill(all.begin() + range.first, all.begin() + range.last + 1, range.kind);
    return all;
  }();
  return classes.data();
}

}  // namespace isobar
