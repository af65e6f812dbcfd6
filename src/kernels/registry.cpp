#include "kernels/registry.h"

#include <array>
#include <vector>

#include "base/cpu_features.h"
#include "base/quote.h"
#include "kernels/cpu/attention.h"
#include "kernels/kernel_lists.h"

namespace halfbyte {
namespace {

constexpr std::array kIsas = {Isa::kRef, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512, Isa::kAmx};

// A CPU that runs `set` runs the kernels of `part`. AVX-512 has a vpdpbusd of its own and need not have AVX-VNNI's.
bool contains(Isa set, Isa part) {
  return part == Isa::kAvxVnni ? set == part : part <= set;
}

const char* weights_name(WeightFormat f) {
  switch (f) {
    case WeightFormat::kF32: return "f32";
    case WeightFormat::kBF16: return "bf16";
    case WeightFormat::kFP8: return "fp8";
    case WeightFormat::kNVFP4: return "nvfp4";
    case WeightFormat::kMXFP4: return "mxfp4";
  }
  return "?";
}

const char* mode_name(ActivationMode m) {
  switch (m) {
    case ActivationMode::kF32: return "f32";
    case ActivationMode::kA16: return "a16";
    case ActivationMode::kA8: return "a8";
    case ActivationMode::kA4: return "a4";
  }
  return "?";
}

// What `isa` needs of the CPU and the operating system and this machine lacks, separated by commas.
std::string missing_features(Isa isa) {
  const CpuFeatures& cpu = cpu_features();
  std::string missing;
  const auto need = [&](const char* name, bool here) {
    if (!here) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  if (isa >= Isa::kAvx2) {
    need("avx2", cpu.avx2);
    need("fma", cpu.fma);
    need("f16c", cpu.f16c);
  }
  if (contains(isa, Isa::kAvxVnni)) need("avx_vnni", cpu.avx_vnni);
  if (isa >= Isa::kAvx512) {
    need("avx512f", cpu.avx512f);
    need("avx512bw", cpu.avx512bw);
    need("avx512dq", cpu.avx512dq);
    need("avx512vl", cpu.avx512vl);
    need("avx512_vnni", cpu.avx512_vnni);
  }
  if (isa == Isa::kAmx) {
    need("avx512_bf16", cpu.avx512_bf16);
    need("amx_tile", cpu.amx_tile);
    need("amx_bf16", cpu.amx_bf16);
    if (cpu.amx_tile) need("the operating system's permission to use AMX tiles", amx_permitted());
  }
  return missing;
}

std::vector<LinearKernel> collect() {
  std::vector<LinearKernel> all;
  const std::span<const LinearKernel> lists[] = {
    ref::linear_nvfp4(),
    ref::linear_mxfp4(),
    ref::linear_bf16(),
    ref::linear_tiles(),
#if defined(HALFBYTE_X86_KERNELS)
    cpu::linear_nvfp4_avx2(),
    cpu::linear_mxfp4_avx2(),
    cpu::linear_bf16_avx2(),
    cpu::linear_nvfp4_avxvnni(),
    cpu::linear_mxfp4_avxvnni(),
    cpu::linear_nvfp4_avx512(),
    cpu::linear_mxfp4_avx512(),
    cpu::linear_bf16_avx512(),
    cpu::linear_nvfp4_amx(),
    cpu::linear_mxfp4_amx(),
    cpu::linear_bf16_amx(),
#endif
  };
  for (const std::span<const LinearKernel> list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kRef: return "ref";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvxVnni: return "avxvnni";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

std::span<const LinearKernel> all_linear_kernels() {
  static const std::vector<LinearKernel> kAll = collect();
  return kAll;
}

std::span<const Isa> all_isas() {
  return kIsas;
}

bool isa_runs_here(Isa isa) {
  return missing_features(isa).empty();
}

// The sets that `want` is true of, as "ref, avx2".
template <class Want>
std::string isa_list(Want want) {
  std::string names;
  for (Isa isa : kIsas) {
    if (want(isa)) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  return names;
}

Result<Isa> choose_isa(std::string_view forced) {
  if (forced.empty()) {
    Isa best = Isa::kRef;
    for (Isa isa : kIsas) {
      if (isa_runs_here(isa)) best = isa;
    }
    return best;
  }
  for (Isa isa : kIsas) {
    if (forced != isa_name(isa)) continue;
    const std::string missing = missing_features(isa);
    if (missing.empty()) return isa;
    return unsupported("kernels " + quote(forced) + " need CPU features that are missing here (" + missing +
                       "); leave the choice to Halfbyte or name a set that runs here (" + isa_list(isa_runs_here) +
                       ")");
  }
  return invalid_argument("unknown kernels " + quote(forced) + ", expected one of " +
                          isa_list([](Isa) { return true; }));
}

Result<const LinearKernel*> find_linear_kernel(WeightFormat weights, ActivationMode activations, Isa isa,
                                               RowRole role) {
  const LinearKernel* best = nullptr;
  for (const LinearKernel& k : all_linear_kernels()) {
    if (k.weights != weights || k.activations != activations || !contains(isa, k.isa)) continue;
    if (k.prompt_only && role != RowRole::kPrompt) continue;
    if (best == nullptr || k.isa > best->isa) best = &k;  // the first of a set is its default form
  }
  if (best != nullptr) return best;
  return unsupported(
      "no kernel multiplies " + std::string(weights_name(weights)) + " weights with " + mode_name(activations) +
      " activations; f32, bf16 and fp8 weights take f32 or bf16 activations, nvfp4 and mxfp4 weights all");
}

const LinearKernel* find_linear_kernel_named(std::string_view name) {
  for (const LinearKernel& k : all_linear_kernels()) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

const VectorKernels& vector_kernels([[maybe_unused]] Isa isa) {
#if defined(HALFBYTE_X86_KERNELS)
  if (isa >= Isa::kAvx512) {
    // Norm and rope are too short to gain from longer vectors: their AVX2 forms run.
    static const VectorKernels kAvx512 = [] {
      VectorKernels k = cpu::vector_kernels_avx2();
      k.isa = Isa::kAvx512;
      k.silu_mul = &cpu::silu_mul_avx512;
      k.attention = {&cpu::attention_rows_avx512, &cpu::attention_cut_avx512, &cpu::attention_merge_avx512};
      k.prompt_attention = k.attention;
      return k;
    }();
    if (isa < Isa::kAmx) return kAvx512;
    static const VectorKernels kAmx = [] {
      VectorKernels k = kAvx512;
      k.isa = Isa::kAmx;
      k.prompt_attention = {&cpu::attention_rows_amx, &cpu::attention_cut_amx, &cpu::attention_merge_avx512,
                            cpu::kAmxQueryRows};
      return k;
    }();
    return kAmx;
  }
  if (isa >= Isa::kAvx2) return cpu::vector_kernels_avx2();
#endif
  return ref::vector_kernels();
}

std::string registry_text() {
  std::string text;
  for (Isa isa : kIsas) {
    const std::string missing = missing_features(isa);
    text += std::string(isa_name(isa)) +
            (missing.empty() ? ": runs here\n" : ": does not run here, missing " + missing + "\n");
    for (const LinearKernel& k : all_linear_kernels()) {
      if (k.isa != isa) continue;
      text += "  " + std::string(k.name) + "  (" + std::to_string(k.row_tile) + " rows a tile, up to " +
              std::to_string(k.max_rows) + " tokens a pass" + (k.prompt_only ? ", prompt rows)\n" : ")\n");
    }
  }
  return text;
}

}  // namespace halfbyte
