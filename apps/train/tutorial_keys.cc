#include "apps/train/tutorial_keys.h"

namespace isobar {

KeyTable TutorialKeys::keys() {
  return {"Keys of the tutorial that change nothing here",
          {key("inf_data_path", inf_data_path, "isobar forecast takes --data").path().free_on_resume(),
           key("enable_fused", enable_fused, "isobar's Adam is always fused").free_on_resume(),
           key("enable_jit", enable_jit, "isobar's kernels are compiled ahead").free_on_resume(),
           key("data_loader_config", data_loader_config, "isobar has one loader").free_on_resume(),
           key("wireup_info", wireup_info, "how ranks find each other").free_on_resume(),
           key("wireup_store", wireup_store, "where they meet").free_on_resume()}};
}

}  // namespace isobar
