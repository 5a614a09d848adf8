// What a data set gives: samples, each of a few named tensors of fixed shape. The loader (data/loader.h) makes batches
// of them without knowing what they mean; the task (models/task.h) knows their names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace isobar {

// One tensor of a sample: {"input", [C, H, W], fp32}. The shape has no batch axis.
struct TensorSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::fp32;
};

// Rows [first, first + count) of a picture.
struct RowBand {
  std::int64_t first = 0, count = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  // What messages call the data: a file or a folder.
  virtual std::string name() const = 0;
  // Number of samples; they are counted from 0.
  virtual std::int64_t samples() const = 0;
  // The tensors of every sample, the same for all.
  virtual std::vector<TensorSpec> layout() const = 0;
  // Writes the tensors of one sample, in the order of layout(), to the buffers `to`. Thread-safe. Throws Error where
  // the sample cannot be read or holds what cannot be trained on.
  virtual void read(std::int64_t sample, std::span<void* const> to) const = 0;

  // The same samples as a process sees them that holds a band of every picture's rows; nothing else of the pictures is
  // read. It refers to what this data set refers to. Throws Error where there are no such rows, and where the samples
  // are read whole or not at all, which is what a data set says that does not override this.
  virtual std::unique_ptr<Dataset> band(RowBand rows) const;
};

}  // namespace isobar
