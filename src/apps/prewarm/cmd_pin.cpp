#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {

Exit run_pin(Session& session) {
  const bool pin = session.options().command == Options::Command::pin;
  const std::unique_ptr<store::Store> store = session.open_store_to_write(false);
  const store::KeyRow row = find_key(*store, session.options().key);
  if (!row.winner)
    throw Stop(Exit::usage, "key " + row.key.sha256.substr(0, 12) + " has no winner to " + (pin ? "pin" : "unpin"));
  must(store->set_pinned(row.key.sha256, pin));
  if (session.options().json)
    print(document({{"key", row.key.sha256}, {"pinned", pin}}));
  else
    print(row.key.kernel + " " + values_text(row.key.problem) + ": " + values_text(row.winner->config) +
          (pin ? " is pinned: no tuning replaces it\n" : " is not pinned any more\n"));
  return Exit::ok;
}

}  // namespace jitune::prewarm
