#include "data/dataset.h"

#include "kernels/common/check.h"

namespace isobar {

std::unique_ptr<Dataset> Dataset::band(RowBand rows) const {
  throw_error(name(), ": samples are read whole, and not rows [", rows.first, ", ", rows.first + rows.count,
              ") of them");
}

}  // namespace isobar
