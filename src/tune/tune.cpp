#include "tune/tune.hpp"

#include "tune/study.hpp"

namespace jitune::tune {

Outcome tune(Services& services, const Request& request) {
  Study study(services, request);
  if (study.claim() && study.prepare() && study.measure_default()) {
    study.explore();
    study.rematch();
    study.publish();
  }
  return std::move(study).outcome();
}

}  // namespace jitune::tune
