#include "apps/prewarm/commands.hpp"
#include "apps/prewarm/rows.hpp"
#include "apps/prewarm/text.hpp"

namespace jitune::prewarm {

Exit run_gc(Session& session) {
  const std::unique_ptr<store::Store> store = session.open_store_to_write(false);
  const store::Store::Evicted done = must(store->collect(session.options().max_bytes));
  if (session.options().json) {
    print(document({{"cubins", done.cubins},
                    {"keys", done.keys},
                    {"studies", done.studies},
                    {"artifacts", done.artifacts},
                    {"failures", done.failures},
                    {"cubin_bytes_before", done.cubin_bytes_before},
                    {"cubin_bytes_after", done.cubin_bytes_after},
                    {"file_bytes_before", done.file_bytes_before},
                    {"file_bytes_after", done.file_bytes_after}}));
    return Exit::ok;
  }
  const auto count = [](int64_t n, const char* what) { return count_text(static_cast<uint64_t>(n), what); };
  print("dropped " + count(done.cubins, "cubin") + ", " + count(done.keys, "key") + ", " +
        count_text(static_cast<uint64_t>(done.studies), "study", "studies") + ", " + count(done.artifacts, "artifact") +
        " and " + count(done.failures, "failure") + "\ncubins " + bytes_text(done.cubin_bytes_before) + " -> " +
        bytes_text(done.cubin_bytes_after) + ", file " + bytes_text(done.file_bytes_before) + " -> " +
        bytes_text(done.file_bytes_after) + "\n");
  return Exit::ok;
}

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
