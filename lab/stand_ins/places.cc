#include "lab/stand_ins/places.h"

namespace isobar::testing {

const char* const kStandIns = ISOBAR_STAND_INS;

}  // namespace isobar::testing
