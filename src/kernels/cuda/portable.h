// Operations of the portable kernels (kernel_set.h) that ops.h's choose where clusters, or wgmma, are not; private to this folder.
#pragma once

#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {

Status norm_rows_portable(const NormRows& args, int rows, Launch launch);
Status silu_rows_portable(const SiluRows& args, int rows, Launch launch);
Status round_rows_portable(const RoundRows& args, int rows, Launch launch);
Status merge_rows_portable(const MergeRows& args, int rows, Launch launch);
Status attention_prompt_portable(const AttentionRows& args, int rows, float* out, Launch launch);
Status draw_rows_portable(const DrawRows& args, int rows, Launch launch);

}  // namespace halfbyte::cuda
