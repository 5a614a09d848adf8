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

// What a set of samples is for: to learn from, to choose the best weights by, or to judge these once.
enum class DataSplit : std::uint8_t { train, valid, test };

// What opening data has to know of the process that does it.
struct OpeningProcess {
  int processes_on_host = 1;  // that open the same data, and share the host's memory
  // The command of this program that tries a file (data/files/trial.h) in a process of its own, where this one must not
  // fork, since MPI or NCCL run in it; empty: it may.
  std::vector<std::string> trial = {};
};

// Rows [first, first + count) of a picture.
struct RowBand {
  std::int64_t first = 0, count = 0;
};

// What a sample is a function of: whatever is random in it (a crop, noise) is drawn from its key alone, so that it is
// the same on every rank and worker and after every resume, and another one in every epoch.
struct SampleKey {
  std::int64_t sample = 0;
  std::int64_t epoch = 0;  // 0 in validations
  std::uint64_t seed = 0;  // of the run

  // Number `index` of this key's own random numbers: 32 bits.
  std::uint32_t random_bits(std::uint64_t index) const;
  // The same as a number from 0 to count - 1. Throws Error unless 1 <= count <= 2^32.
  std::int64_t random_below(std::int64_t count, std::uint64_t index) const;
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
  virtual void read(const SampleKey& key, std::span<void* const> to) const = 0;

  // The same samples as a process sees them that holds a band of every picture's rows; nothing else of the pictures is
  // read. It refers to what this data set refers to. Throws Error where there are no such rows, and where the samples
  // are read whole or not at all, which is what a data set says that does not override this.
  virtual std::unique_ptr<Dataset> band(RowBand rows) const;
};

}  // namespace isobar
