#include "pool/width.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "pool/pool.hpp"

namespace jitune::pool {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The number in a file, or `fallback` (also for `max`).
int64_t number_in(const std::string& path, int64_t fallback) {
  std::istringstream line(first_line(path));
  int64_t number = 0;
  return line >> number ? number : fallback;
}

int64_t available_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::strtoll(line.c_str() + 13, nullptr, 10) * 1024;
  return 0;
}

/// This process's cgroup for a v1 `controller`, or for v2 with "", and the groups above it, which bind it too.
std::vector<std::string> cgroup_dirs(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string own;
  for (std::string line; std::getline(file, line);) {  // 4:cpu,cpuacct:/user.slice
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",," ? controller.empty() : controllers.find("," + controller + ",") != std::string::npos)
      own = line.substr(second + 1);
  }
  const std::string base = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  std::vector<std::string> dirs{base};
  for (size_t end = own.find('/', 1); own.size() > 1; end = own.find('/', end + 1)) {
    dirs.push_back(base + own.substr(0, end));
    if (end == std::string::npos) break;
  }
  return dirs;
}

double quota(const std::string& root) {
  double least = 0;
  const auto take = [&](double amount, double period) {
    if (amount > 0 && period > 0 && (least == 0 || amount / period < least)) least = amount / period;
  };
  for (const std::string& dir : cgroup_dirs(root, "")) {
    std::istringstream line(first_line(dir + "/cpu.max"));  // `max 100000` or `150000 100000`
    double amount = 0, period = 0;
    if (line >> amount >> period) take(amount, period);
  }
  for (const std::string& dir : cgroup_dirs(root, "cpu"))
    take(static_cast<double>(number_in(dir + "/cpu.cfs_quota_us", 0)),
         static_cast<double>(number_in(dir + "/cpu.cfs_period_us", 0)));
  return least;
}

/// The cgroup's own caches (inactive files) can be taken back, so they count as free.
int64_t reclaimable(const std::string& stat_path) {
  std::ifstream file(stat_path);
  std::string name;
  for (int64_t bytes = 0; file >> name >> bytes;)
    if (name == "inactive_file" || name == "total_inactive_file") return bytes;
  return 0;
}

int64_t cgroup_memory(const std::string& root) {
  int64_t least = INT64_MAX;
  const auto take = [&](const std::string& dir, const char* limit_name, const char* used_name) {
    const int64_t limit = number_in(dir + "/" + limit_name, INT64_MAX), used = number_in(dir + "/" + used_name, -1);
    if (limit == INT64_MAX || limit <= 0 || used < 0) return;
    least = std::min(least, std::max<int64_t>(limit - used + reclaimable(dir + "/memory.stat"), 1));
  };
  for (const std::string& dir : cgroup_dirs(root, "")) take(dir, "memory.max", "memory.current");
  for (const std::string& dir : cgroup_dirs(root, "memory"))
    take(dir, "memory.limit_in_bytes", "memory.usage_in_bytes");
  return least;
}

}  // namespace

Resources read_resources(const std::string& root) {
  Resources resources;
  cpu_set_t set;
  if (root.empty() && ::sched_getaffinity(0, sizeof set, &set) == 0) {
    resources.cores = CPU_COUNT(&set);
  } else {
    resources.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  resources.quota_cores = quota(root);
  resources.available_bytes = available_memory(root);
  const int64_t group = cgroup_memory(root);
  if (group != INT64_MAX && (resources.available_bytes == 0 || group < resources.available_bytes))
    resources.available_bytes = group;
  return resources;
}

int width_for(const Resources& resources, int64_t bytes_each) {
  double cores = resources.cores;
  if (resources.quota_cores > 0) cores = std::min(cores, resources.quota_cores);
  auto width = static_cast<int64_t>(0.9 * cores + 1e-9);
  if (resources.available_bytes > 0 && bytes_each > 0) width = std::min(width, resources.available_bytes / bytes_each);
  return static_cast<int>(std::max<int64_t>(width, 1));
}

int default_width(int64_t bytes_each) {
  return width_for(read_resources(), bytes_each);
}

}  // namespace jitune::pool
