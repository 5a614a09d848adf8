// The interface of data sets: samples, each with a few named tensors of fixed shape. The loader (data/loader.h) makes
// batches of them without knowing their meaning; the task (models/task.h) knows their names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace isobar {

// One tensor of a sample: {"input", [V, LAT, LON], fp32}. The shape has no batch axis.
struct TensorSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::fp32;
};

// The purpose of a set: to train on, to choose the best weights, or to test these once.
enum class DataSplit : std::uint8_t { train, valid, test };

// Facts about this process that opening data needs.
struct OpeningProcess {
  // Processes that open the same data and share the memory of this host
  int processes_on_host = 1;
  // The command of this program that tries a file (data/files/trial.h) in a new process, for a process that must not
  // fork because MPI or NCCL run in it. Empty: this process may fork.
  std::vector<std::string> trial = {};
};

// Rows [first, first + count) of a picture.
struct RowBand {
  std::int64_t first = 0, count = 0;
};

// Identifies a sample. Everything random in the sample (a crop, noise) is drawn from its key alone. So it is the same
// on every rank and worker and after every resume, and differs between epochs.
struct SampleKey {
  std::int64_t sample = 0;
  std::int64_t epoch = 0;  // 0 in validation
  std::uint64_t seed = 0;  // of the run

  // The key of this sample in one of a run's sets: each has random numbers of its own. Throws Error for a sample that
  // is not below 2^30.
  SampleKey of(DataSplit split) const;

  // Random number `index` of this key: 32 bits.
  std::uint32_t random_bits(std::uint64_t index) const;
  // The same, scaled to 0 ... count - 1. Throws Error unless 1 <= count <= 2^32.
  std::int64_t random_below(std::int64_t count, std::uint64_t index) const;
  // Uniform in [0, 1) with 24 bits, of number `index`.
  float random_uniform(std::uint64_t index) const;
  // A standard normal number, of numbers 2·index and 2·index + 1.
  double random_normal(std::uint64_t index) const;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  // The name of the data in messages: a file or a folder.
  virtual std::string name() const = 0;
  // Number of samples; indices start at 0.
  virtual std::int64_t samples() const = 0;
  // The tensors of every sample, the same for all.
  virtual std::vector<TensorSpec> layout() const = 0;
  // Whether the order of the samples is a part of the set (a random one, drawn by the set): nobody shuffles them again.
  virtual bool has_own_order() const { return false; }
  // Writes the tensors of one sample to the buffers `to`, in the order of layout(). Thread-safe. Throws Error if the
  // sample cannot be read or holds values that cannot be trained on.
  virtual void read(const SampleKey& key, std::span<void* const> to) const = 0;

  // The same samples for a process that holds only a band of rows of every picture; other rows are not read. It refers
  // to what this data set refers to. Throws Error if these rows do not exist, or if the data set only reads whole
  // pictures (the default implementation).
  virtual std::unique_ptr<Dataset> band(RowBand rows) const;
};

}  // namespace isobar
