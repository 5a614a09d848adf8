// What a file tells about an array that it holds, whatever the format of the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/files/number_format.h"

namespace isobar {

// One text, a list of texts, or numbers; the other list is empty. Integers of 64 bits are rounded to fp64, as the
// array's own numbers are when they are read.
struct Attribute {
  std::vector<std::string> texts = {};
  std::vector<double> numbers = {};
};
using Attributes = std::map<std::string, Attribute>;

struct ArrayInfo {
  std::string name;  // "t2m"; within a group "group/t2m"
  std::vector<std::int64_t> shape = {};
  std::vector<std::string> dimensions = {};  // their names, one an axis; empty where the file names none
  Attributes attributes = {};
  bool has_numbers = false;                 // whether they can be read as fp32 and fp64, as far as their type goes
  std::optional<NumberFormat> format = {};  // nothing: no numbers, or numbers that only the HDF5 library converts
  std::string type_name = {};               // for messages: "16-bit integer", "text", "values of type complex64"
};

}  // namespace isobar
