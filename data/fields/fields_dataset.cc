#include "data/fields/fields_dataset.h"

#include <array>
#include <utility>
#include <vector>

#include "data/files/hdf5_box_reader.h"

namespace isobar {
namespace {

class FieldsDataset : public FieldReader {
 public:
  FieldsDataset(hdf5::File file, const hdf5::DatasetInfo& info, const CacheBudget& budget)
      : file_(std::move(file)),
        reader_(make_box_reader(file_, kFields, info, {.budget = budget, .rows = "steps", .values = "fields"})),
        chunk_(info.layout.chunk) {}

  // Channels that follow each other in the file and in memory are one box.
  void read(std::int64_t step, std::span<const Plane> planes, FieldCrop crop) override {
    const std::int64_t pixels = crop.height * crop.width;
    for (std::size_t first = 0; first < planes.size();) {
      std::size_t end = first + 1;
      while (end < planes.size() && planes[end].channel == planes[end - 1].channel + 1 &&
             planes[end].to == planes[end - 1].to + pixels)
        ++end;
      reader_->read(std::array<std::int64_t, 4>{step, planes[first].channel, crop.row, 0},
                    std::array<std::int64_t, 4>{1, static_cast<std::int64_t>(end - first), crop.height, crop.width},
                    planes[first].to);
      first = end;
    }
  }

  std::string name() const override { return reader_->name(); }
  std::vector<std::int64_t> chunk() const override { return chunk_; }

 private:
  hdf5::File file_;
  std::unique_ptr<BoxReader> reader_;  // refers to the file
  std::vector<std::int64_t> chunk_;
};

}  // namespace

OpenedFields open_fields_dataset(hdf5::File file, const CacheBudget& budget) {
  const hdf5::DatasetInfo info = info_of_fields(file);
  FieldFacts facts = read_facts(file, info);
  return {std::move(facts), std::make_unique<FieldsDataset>(std::move(file), info, budget)};
}

}  // namespace isobar
