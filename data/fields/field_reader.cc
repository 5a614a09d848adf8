#include "data/fields/field_reader.h"

#include "data/fields/fields_dataset.h"
#include "data/files/hdf5.h"

namespace isobar {

OpenedFields open_fields(const std::string& path, const CacheBudget& budget) {
  return open_fields_dataset(hdf5::File::open(path), budget);
}

}  // namespace isobar
