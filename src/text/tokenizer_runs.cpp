// Prompts made of template text and text that came with a request.
#include <algorithm>

#include "text/tokenizer_core.h"

namespace halfbyte {
namespace {

// Whether any byte of [begin, end) came with the request. `ends` are the ends of the runs in the joined text.
bool touches_request(std::span<const TextRun> runs, const std::vector<size_t>& ends, size_t begin, size_t end) {
  auto i = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
  for (; i < runs.size() && ends[i] - runs[i].text.size() < end; ++i) {
    if (runs[i].from_request && !runs[i].text.empty()) return true;
  }
  return false;
}

}  // namespace

Status Tokenizer::Impl::encode_runs(std::span<const TextRun> runs, std::span<const int32_t> control,
                                    EncodeScratch& scratch, std::vector<int32_t>& out) const {
  std::string text;
  std::vector<size_t> ends;
  for (const TextRun& run : runs) {
    text += run.text;
    ends.push_back(text.size());
  }
  HB_TRY(check_text(text));
  std::vector<TextPart> parts;
  raw_matcher.split(text, /*special_tokens=*/true, parts);
  size_t plain_begin = 0;  // of the text that waits: [plain_begin, the current part)
  const auto flush = [&](size_t end) -> Status {
    if (end == plain_begin) return {};
    const bool template_text = !touches_request(runs, ends, plain_begin, end);
    const std::string_view part = std::string_view(text).substr(plain_begin, end - plain_begin);
    return encode_part(part, plain_begin == 0, template_text, scratch, out);
  };
  for (const TextPart& part : parts) {
    if (part.id < 0) continue;
    const bool is_control =
        special[static_cast<size_t>(part.id)] || std::binary_search(control.begin(), control.end(), part.id);
    if (is_control && touches_request(runs, ends, part.begin, part.end)) continue;
    HB_TRY(flush(part.begin));
    out.push_back(part.id);
    plain_begin = part.end;
  }
  return flush(text.size());
}

Result<std::vector<int32_t>> Tokenizer::encode_runs(std::span<const TextRun> runs,
                                                    std::span<const int32_t> control) const {
  EncodeScratch scratch;
  std::vector<int32_t> ids;
  HB_TRY(impl_->encode_runs(runs, control, scratch, ids));
  return ids;
}

}  // namespace halfbyte
