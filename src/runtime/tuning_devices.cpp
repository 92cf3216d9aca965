#include "runtime/tuning_devices.hpp"

#include <algorithm>

#include "gpu/driver.hpp"
#include "key/device_class.hpp"

namespace jitune::runtime {

TuningDevices find_tuning_devices(const std::vector<std::string>& names, const space::DeviceInfo& own) {
  TuningDevices found;
  if (names.empty()) return found;
  const auto devices = gpu::devices();
  if (!devices) {
    found.wrong.push_back(devices.error());
    return found;
  }
  for (const std::string& name : names) {
    bool is_known = name == "all" || name == "own";
    for (const auto& device : *devices) {
      is_known = is_known || device.uuid == name;
      if (device.uuid == own.uuid || (name != "all" && device.uuid != name)) continue;
      const auto differences = key::class_differences(own, device);
      if (device.uuid == name && !differences.empty())
        found.wrong.push_back(name + " is not of the class of " + own.uuid + ": " + differences.front());
      if (differences.empty() && std::none_of(found.devices.begin(), found.devices.end(),
                                              [&](const auto& each) { return each.uuid == device.uuid; }))
        found.devices.push_back(device);
    }
    if (!is_known) found.wrong.push_back("this process sees no GPU " + name);
  }
  return found;
}

bool is_tuning_device(const std::string& name) {
  return name == "all" || name == "own" || name.starts_with("GPU-") || name.starts_with("MIG-");
}

}  // namespace jitune::runtime
