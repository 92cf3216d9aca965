#include "store/record.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "store/files_at.hpp"
#include "store/open.hpp"
#include "store/travel.hpp"

namespace jitune::store {
namespace {

bool has_cubin(const WinnerRecord& record) {
  return record.winner.artifact && !record.winner.artifact->cubin.empty();
}

auto rank(const WinnerRecord& record) {
  const WinnerRow& winner = record.winner;
  static const ArtifactRow kNone;
  const ArtifactRow& artifact = winner.artifact ? *winner.artifact : kNone;
  return std::make_tuple(!winner.pinned, !(winner.median_us > 0), winner.median_us, !has_cubin(record),
                         winner.decided_at, std::cref(winner.config), std::cref(artifact.build_sha256),
                         std::cref(artifact.cubin_sha256), winner.default_us, std::cref(record.device),
                         std::cref(record.driver), std::cref(record.origin));
}

auto place(const WinnerRecord& record) {
  const key::TuningKey& key = record.key;
  return std::tie(key.kernel, key.variant, key.problem, key.arch, key.nvrtc, key.sha256);
}

void unify_artifacts(std::vector<WinnerRecord>& records) {
  std::map<std::string, ArtifactRow> first;  // by build key
  for (const WinnerRecord& record : records) {
    if (!has_cubin(record)) continue;
    const ArtifactRow& artifact = *record.winner.artifact;
    const auto [at, fresh] = first.try_emplace(artifact.build_sha256, artifact);
    if (!fresh && artifact.cubin_sha256 < at->second.cubin_sha256) at->second = artifact;
  }
  for (WinnerRecord& record : records) {
    if (!record.winner.artifact) continue;
    if (const auto at = first.find(record.winner.artifact->build_sha256); at != first.end())
      record.winner.artifact = at->second;
  }
}

Result<void> fail(const std::string& path, const std::string& what) {
  return Failure{"'" + path + "' can't be written: " + what};
}

}  // namespace

bool beats(const WinnerRecord& a, const WinnerRecord& b) {
  return rank(a) < rank(b);
}

std::vector<WinnerRecord> reduce(std::vector<WinnerRecord> records, size_t* dropped) {
  unify_artifacts(records);
  std::sort(records.begin(), records.end(), [](const WinnerRecord& a, const WinnerRecord& b) {
    const auto one = place(a), other = place(b);
    return one != other ? one < other : beats(a, b);
  });
  const auto same_key = [](const WinnerRecord& a, const WinnerRecord& b) { return a.key.sha256 == b.key.sha256; };
  const auto end = std::unique(records.begin(), records.end(), same_key);
  if (dropped != nullptr) *dropped = static_cast<size_t>(records.end() - end);
  records.erase(end, records.end());
  return records;
}

Result<void> write_bundle(const std::string& path, const std::vector<WinnerRecord>& records) {
  const std::string target = resolved_path(path);
  const std::string fresh = target + ".new-" + std::to_string(::getpid());
  try {
    Database database = open_memory();
    Store::TakenIn counts;
    {
      Transaction transaction(database);
      for (const WinnerRecord& record : records) take_in(database, record, 0, counts);
      transaction.commit();
    }
    database.execute("PRAGMA auto_vacuum=INCREMENTAL");
    database.prepare("VACUUM INTO ?").bind(fresh).run();
  } catch (const SqliteError& error) {
    ::unlink(fresh.c_str());
    return fail(path, error.what());
  }
  if (::chmod(fresh.c_str(), 0644) != 0 || std::rename(fresh.c_str(), target.c_str()) != 0) {
    const int code = errno;
    ::unlink(fresh.c_str());
    return fail(path, std::strerror(code));
  }
  return {};
}

}  // namespace jitune::store
