// What CUDA devices are there, which kernels they get, and the measured times that choose among them.
#include "engine/cuda_devices.h"

#include "halfbyte/version.h"
#include "kernels/cuda/cold_linear.h"
#include "model/config.h"

namespace halfbyte {
namespace {

cuda::TableKey key_of(const cuda::DeviceInfo& device) {
  return {device.name, device.driver, build_commit()};
}

Result<cuda::LinearTable> table_of(const cuda::DeviceInfo& device) {
  return cuda::read_linear_table(cuda::linear_table_path(device.name), key_of(device));
}

CudaDeviceEntry entry_of(const cuda::DeviceInfo& d) {
  CudaDeviceEntry out;
  out.index = d.index;
  out.used = d.index == 0 && d.unusable.empty();
  out.name = d.name;
  out.compute = std::to_string(d.major) + "." + std::to_string(d.minor);
  out.multiprocessors = d.multiprocessors;
  out.memory_bytes = d.memory_bytes;
  out.l2_bytes = d.l2_bytes;
  out.shared_bytes = d.shared_bytes;
  out.driver = cuda::version_text(d.driver);
  out.unusable = d.unusable;
  if (d.unusable.empty()) out.runs = cuda::describe(d.kernels);
  return out;
}

std::string device_line(const CudaDeviceEntry& d) {
  return "cuda " + std::to_string(d.index) + ": " + d.name + ", compute capability " + d.compute + ", " +
         std::to_string(d.multiprocessors) + " multiprocessors, " + std::to_string(d.memory_bytes >> 30) + " GiB, L2 " +
         std::to_string(d.l2_bytes >> 20) + " MiB, " + std::to_string(d.shared_bytes >> 10) +
         " KiB of shared memory a thread block, driver " + d.driver + "\n";
}

// What lies in the table's place can be replaced by another table.
bool replaceable(const Status& status) {
  return status.code() != StatusCode::kInvalidArgument;
}

void add_table(const cuda::DeviceInfo& d, CudaDeviceEntry& out) {
  if (!d.kernels.ring) {
    out.linears = "the one above for all, no other kernel runs here";
    return;
  }
  const auto table = table_of(d);
  if (!table.ok()) {
    out.linears = "the one above; measured times are not used: " + table.status().message() +
                  (replaceable(table.status()) ? "; halfbyte inspect --devices --measure makes them anew" : "");
  } else if (table->lines().empty()) {
    out.linears = "the one above for all (halfbyte inspect --devices --measure times them)";
  } else {
    out.times = table->lines();
    out.times_text = table->text();
    out.linears = std::to_string(out.times.size()) + " measured times in " + cuda::linear_table_path(d.name).string();
  }
}

}  // namespace

Status cuda_usable() {
  return cuda::usable_device(0).status();
}

Result<CudaPlace> cuda_place() {
  HB_ASSIGN(const cuda::DeviceInfo device, cuda::usable_device(0));
  return place_of(device);
}

std::string unusable_cuda_device() {
  if (!cuda::driver_is_there()) return "";
  const Status usable = cuda_usable();
  if (usable.ok()) return "";
  const auto all = cuda::devices();
  return all.ok() && all->empty() ? "" : usable.message();
}

CudaPlace place_of(const cuda::DeviceInfo& device) {
  return {device.name, std::string(cuda::family_name(device.kernels)), cuda::describe(device.kernels)};
}

Status force_cuda_kernels(const std::string& name) {
  HB_ASSIGN(const cuda::ForcedKernels forced, cuda::forced_kernels_named(name));
  cuda::force_kernels(forced);
  return {};
}

void use_measured_linears(const cuda::DeviceInfo& device) {
  auto table = table_of(device);
  cuda::use_linear_table(table.ok() ? std::move(table).value() : cuda::LinearTable());
}

Result<std::vector<CudaDeviceEntry>> cuda_device_entries() {
  HB_ASSIGN(const std::vector<cuda::DeviceInfo> all, cuda::devices());
  std::vector<CudaDeviceEntry> out;
  for (const cuda::DeviceInfo& d : all) {
    out.push_back(entry_of(d));
    if (d.unusable.empty()) add_table(d, out.back());
  }
  return out;
}

Result<std::string> cuda_devices_text(bool table) {
  HB_ASSIGN(const std::vector<CudaDeviceEntry> all, cuda_device_entries());
  std::string text;
  for (const CudaDeviceEntry& d : all) {
    text += device_line(d);
    if (!d.unusable.empty()) {
      text += "  not used: " + d.unusable + "\n";
      continue;
    }
    text += (d.used ? "  runs " : "  not used, device 0 is (CUDA_VISIBLE_DEVICES chooses another); would run ") +
            d.runs + "\n  linears by shape: " + d.linears + (d.times.empty() || table ? "" : " (--table prints them)") +
            "\n";
    if (table) text += d.times_text;
  }
  return text;
}

Result<std::string> measure_cuda_linears(const std::vector<ModelConfig>& models) {
  HB_ASSIGN(const cuda::DeviceInfo device, cuda::usable_device(0));
  if (!device.kernels.ring)
    return unsupported(device.name + " has one kernel for linears of decode, " +
                       std::string(cuda::linear_kernel_name(device.kernels.linear)) + " (" + device.kernels.why +
                       "): there is nothing to choose, and nothing is measured");
  auto old = table_of(device);
  if (!old.ok() && !replaceable(old.status())) return old.status();
  std::string text = old.ok() ? "" : "measured anew: " + old.status().message() + "\n";
  cuda::LinearTable table = old.ok() ? std::move(old).value() : cuda::LinearTable();
  for (const ModelConfig& c : models) {
    const std::pair<int64_t, int64_t> shapes[] = {{c.q_width() + 2 * c.kv_width(), c.hidden},
                                                  {c.hidden, c.q_width()},
                                                  {2 * c.intermediate, c.hidden},
                                                  {c.hidden, c.intermediate}};
    for (const auto& [n, k] : shapes) {
      HB_ASSIGN(const std::vector<cuda::LinearTimes> times, cuda::measure_linear(n, k, device.multiprocessors));
      for (const cuda::LinearTimes& t : times) table.add(t);
    }
  }
  const auto path = cuda::linear_table_path(device.name);
  HB_TRY(cuda::write_linear_table(path, table, key_of(device)));
  return text + device_line(entry_of(device)) + "  kept in " + path.string() + "\n" + table.text();
}

}  // namespace halfbyte
