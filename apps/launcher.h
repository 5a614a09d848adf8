// Whether a launcher (srun, torchrun, mpirun) started this process as one of several.
#pragma once

namespace isobar {

// Throws Error naming the variable that says so where this process is one of several tasks: each would train the whole
// model, and they would write over each other.
void refuse_several_tasks();

}  // namespace isobar
