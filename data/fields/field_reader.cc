#include "data/fields/field_reader.h"

#include "data/fields/fields_dataset.h"
#include "data/fields/variable_fields.h"
#include "data/files/hdf5.h"
#include "data/files/stored_arrays.h"

namespace isobar {

OpenedFields open_fields(const std::string& path, const CacheBudget& budget) {
  if (!is_stored_arrays(path)) return open_fields_dataset(hdf5::File::open(path), budget);
  return open_variable_fields(open_stored_arrays(path), budget);
}

}  // namespace isobar
