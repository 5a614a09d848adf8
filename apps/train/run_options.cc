#include "apps/train/run_options.h"

namespace isobar {

KeyTable RunOptions::keys() {
  return {
      "The run",
      {key("expdir", expdir, "where run folders go without --run-dir: expdir/CONFIG/DEVICES/RUN-NUM")
           .free_on_resume()
           .also_called({"outputdir", "logdir"}),
       key("log_every", log_every, "iterations between train lines in metrics.jsonl")
           .at_least(1)
           .free_on_resume()
           .also_called({"loginterval"}),
       key("validate_every", validate_every, "iterations between validations; 0: at epoch ends")
           .at_least(0)
           .free_on_resume()
           .also_called({"evalinterval", "valinterval"}),
       key("checkpoint_every", checkpoint_every, "iterations between checkpoints; 0: at epoch ends")
           .at_least(0)
           .free_on_resume()
           .also_called({"saveinterval"}),
       key("keep_checkpoints", keep_checkpoints, "the newest that are kept; 0: all").at_least(0).free_on_resume(),
       key("validate_at_start", validate_at_start, "a run begins with a validation of its first weights")
           .free_on_resume(),
       key("test_weights", test_weights, "the weights that the test set is scored with at the end of a run")
           .free_on_resume(),
       key("exit_interval", exit_interval,
           "a run ends, with a checkpoint and status 0, after each iteration that is a multiple of this; --resume "
           "goes on; null: at its end only")
           .at_least(1)
           .free_on_resume()
           .also_called({"exitinterval"}),
       key("exit_duration_mins", exit_duration_mins, "the same after so many minutes of a process; 0: at its end only")
           .at_least(0)
           .free_on_resume()
           .also_called({"exitdurationinmins", "maxtime"}),
       key("resume", resume, "auto: a run goes on where its folder holds one, as with --resume; false: only then")
           .free_on_resume()}};
}

}  // namespace isobar
