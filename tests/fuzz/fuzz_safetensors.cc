// A safetensors file of any bytes has tensors that lie within it, each with as many bytes as its shape and dtype need,
// or is an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/files/safetensors.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(safetensors) {
  const isobar::testing::InputFile input(data, size);
  try {
    const isobar::SafetensorsFile file(input.path());
    for (const isobar::TensorBytes& tensor : file.tensors()) {
      if (tensor.bytes.size() != isobar::bytes_of(tensor.info) || tensor.bytes.size() > size) std::abort();
      if (file.find(tensor.info.name) != &tensor) std::abort();
      std::vector<std::byte> copy(tensor.bytes.size());
      isobar::copy_elements(tensor, tensor.info.dtype, copy.data());
    }
  } catch (const isobar::Error&) {
  }
  return 0;
}
