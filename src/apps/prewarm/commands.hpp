#pragma once

#include "apps/prewarm/session.hpp"

namespace jitune::prewarm {

// The commands. Each prints its result on stdout, as text or (--json) as one JSON document, and gives the exit code for
// what it could only partly do; what it could not do at all is a Stop.
Exit run_tune(Session& session);
Exit run_compile(Session& session);
Exit run_space(Session& session);
Exit run_list(Session& session);
Exit run_show(Session& session);
Exit run_replay(Session& session);
Exit run_dump(Session& session);
Exit run_doctor(Session& session);
Exit run_export(Session& session);
Exit run_import(Session& session);
Exit run_merge(Session& session);
Exit run_check(Session& session);
Exit run_why(Session& session);
Exit run_gc(Session& session);
Exit run_pin(Session& session);  ///< and unpin

}  // namespace jitune::prewarm
