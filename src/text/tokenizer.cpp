#include "text/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"
#include "text/normalizer.h"
#include "text/tokenizer_core.h"

namespace halfbyte {
namespace {

// Pieces are 32-bit offsets, and normalising can make text longer.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

}  // namespace

Status Tokenizer::Impl::add_tokens(const std::vector<AddedTokenRule>& rules) {
  special.assign(static_cast<size_t>(model->vocab_size()), false);
  for (AddedTokenRule rule : rules) {
    if (rule.text.empty()) continue;
    added.push_back({rule.id, rule.text, rule.special});
    added_ids.emplace(rule.text, rule.id);
    if (rule.special) special[static_cast<size_t>(rule.id)] = true;
    if (rule.normalized && nfc) {
      std::string normal_text;
      append_nfc(rule.text, normal_text);
      rule.text = std::move(normal_text);
    }
    AddedTokenMatcher& matcher = rule.normalized ? normalized_matcher : raw_matcher;
    HB_TRY(matcher.add(std::move(rule)).with_context(name));
  }
  return {};
}

Status Tokenizer::Impl::encode_plain(std::string_view text, EncodeScratch& scratch, std::vector<int32_t>& out) const {
  std::string spaced;
  if (add_prefix_space && !text.starts_with(' ')) {
    spaced.append(" ").append(text);
    text = spaced;
  }
  HB_TRY(pretokenizer.split(text, scratch.stage_pieces, scratch.pieces));
  for (const Piece& piece : scratch.pieces) {
    model->encode(text.substr(piece.begin, piece.end - piece.begin), scratch.bpe, out);
  }
  return {};
}

void Tokenizer::Impl::encode_sentencepiece(std::string_view text, bool begins, EncodeScratch& scratch,
                                           std::vector<int32_t>& out) const {
  using Where = SpacePrefix::Where;
  std::string& plain = scratch.normal;
  plain.clear();
  append_with_spaces(text, plain);
  const bool wanted = space_prefix.where == Where::kEveryPart || (begins && space_prefix.where == Where::kText);
  if (wanted && (space_prefix.always || !plain.starts_with(' '))) plain.insert(0, 1, ' ');
  model->encode(plain, scratch.bpe, out);
}

Status Tokenizer::Impl::encode_part(std::string_view text, bool begins, bool special_tokens, EncodeScratch& scratch,
                                    std::vector<int32_t>& out) const {
  if (sentencepiece) {
    encode_sentencepiece(text, begins, scratch, out);
    return {};
  }
  if (nfc && !is_surely_nfc(text)) {
    scratch.normal.clear();
    append_nfc(text, scratch.normal);
    text = scratch.normal;
  }
  if (normalized_matcher.empty()) return encode_plain(text, scratch, out);
  normalized_matcher.split(text, special_tokens, scratch.normal_parts);
  for (const TextPart& part : scratch.normal_parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
    } else {
      HB_TRY(encode_plain(text.substr(part.begin, part.end - part.begin), scratch, out));
    }
  }
  return {};
}

Status Tokenizer::Impl::check_text(std::string_view text) const {
  if (text.size() > kMaxTextBytes) {
    return resource_exhausted(
        fmt::format("the text has {} bytes, at most {} can be tokenised at once", text.size(), kMaxTextBytes));
  }
  if (const auto at = find_invalid_utf8(text)) {
    return invalid_argument(
        fmt::format("the text is not valid UTF-8: byte {} is 0x{:02x}", *at, static_cast<unsigned char>(text[*at])));
  }
  return {};
}

Status Tokenizer::Impl::encode(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
                               std::vector<int32_t>& out) const {
  HB_TRY(check_text(text));
  const size_t before = out.size();
  if (options.add_bos) out.insert(out.end(), prefix.begin(), prefix.end());
  raw_matcher.split(text, options.special_tokens, scratch.raw_parts);
  for (const TextPart& part : scratch.raw_parts) {
    if (part.id >= 0) {
      out.push_back(part.id);
      continue;
    }
    const std::string_view plain = text.substr(part.begin, part.end - part.begin);
    if (Status status = encode_part(plain, part.begin == 0, options.special_tokens, scratch, out); !status.ok()) {
      out.resize(before);
      return status;
    }
  }
  if (options.add_bos) out.insert(out.end(), suffix.begin(), suffix.end());
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Status Tokenizer::encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& out) const {
  EncodeScratch scratch;
  return impl_->encode(text, options, scratch, out);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  HB_TRY(encode(text, options, ids));
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return impl_->model->token_bytes(id);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::find(std::string_view text) const {
  if (const auto it = impl_->added_ids.find(std::string(text)); it != impl_->added_ids.end()) return it->second;
  return impl_->model->find(text);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!(skip_special && is_special(id))) bytes += token_bytes(id);
  }
  return bytes;
}

int32_t Tokenizer::vocab_size() const {
  return impl_->model->vocab_size();
}
std::optional<int32_t> Tokenizer::bos() const {
  return impl_->bos;
}
std::optional<int32_t> Tokenizer::eos() const {
  return impl_->eos;
}
const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return impl_->added;
}
bool Tokenizer::drops_first_space() const {
  return impl_->drops_first_space;
}
const std::string& Tokenizer::pre_tokenizer_name() const {
  return impl_->pre_tokenizer_name;
}

}  // namespace halfbyte
