#include "data/fields/field_reader.h"

#include <algorithm>
#include <utility>

#include "data/fields/fields_dataset.h"
#include "data/fields/variable_fields.h"
#include "data/files/hdf5.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"
#include "kernels/common/comma_list.h"

namespace isobar {
OpenedFields open_fields(const std::string& path, const CacheBudget& budget) {
  if (!is_for_hdf5(path)) return open_variable_fields(open_stored_arrays(path), budget);
  hdf5::File file = hdf5::File::open(path);
  if (file.has(kFields)) return open_fields_dataset(std::move(file), budget);
  std::shared_ptr<const StoredArrays> arrays = stored_arrays_of(std::move(file));
  const std::string names = comma_list(arrays->arrays(), &ArrayInfo::name);
  const bool has_dimensions =
      std::ranges::any_of(arrays->arrays(), [](const ArrayInfo& array) { return !array.dimensions.empty(); });
  ISOBAR_CHECK(has_dimensions, path, " has no dataset 'fields'; it holds ", names.empty() ? "nothing" : names);
  return open_variable_fields(std::move(arrays), budget);
}

}  // namespace isobar
