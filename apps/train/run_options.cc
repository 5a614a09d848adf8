#include "apps/train/run_options.h"

namespace isobar {

KeyTable RunOptions::keys() {
  return {"The run",
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
           key("resume", resume, "auto: a run goes on where its folder holds one, as with --resume; false: only then")
               .free_on_resume()}};
}

}  // namespace isobar
